"""Differential privacy: clip and noise as stated, epsilon as the accountant has it, and what is refused."""

import math
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ecgr.algorithms import privacy
from ecgr.algorithms.base import Defaults
from ecgr.algorithms.privacy import DP, Numbers, clipped, epsilon, next_clip, noised_mean
from ecgr.algorithms.server_rules import Average
from ecgr.component import State, Tensor
from ecgr.config.experiment import Experiment, load
from ecgr.config.methods import parse_method
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.streams import SystemNumbers, stream

accounted = pytest.mark.skipif(find_spec("dp_accounting") is None, reason="the extra privacy is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [stream(0, "noise"), SystemNumbers()], ids=["seeded", "system"])
def test_noise_and_clip_over_ten_thousand_rounds(numbers: Numbers) -> None:
    """Three clients with updates of length 0.5, 2 and 10, clip 2, noise 1.5, four expected: the mean of the rounds is
    (u_1 + u_2 + u_3 / 5) / 4, and each coordinate has the variance (1.5 * 2 / 4)^2.

    Of a million numbers the variance has a relative standard error of 0.14 %, a coordinate's mean one of 0.0075.
    """
    rng = stream(1, "updates")
    lengths = (0.5, 2.0, 10.0)
    updates = [torch.from_numpy(u / np.linalg.norm(u) * n) for u, n in ((rng.normal(size=100), n) for n in lengths)]
    like = torch.zeros(100, dtype=torch.float64)
    rounds = torch.stack([noised_mean(updates, like, 2.0, 1.5, 4.0, numbers) for _ in range(10_000)])
    expected = (updates[0] + updates[1] + updates[2] / 5) / 4
    noise = (rounds - expected).numpy()
    assert noise.var() == pytest.approx((1.5 * 2 / 4) ** 2, rel=0.02)
    assert np.abs(noise.mean(axis=0)).max() < 5 * 0.0075
    spread = noise.std(axis=0)
    assert spread.min() > 0.75 * 0.95
    assert spread.max() < 0.75 * 1.05
    beyond = [float((np.abs(noise) > k * 0.75).mean()) for k in (1, 2, 3)]
    assert beyond == pytest.approx([math.erfc(k / math.sqrt(2)) for k in (1, 2, 3)], rel=0.1)


def test_numbers_of_the_system_are_uniform_and_never_the_same() -> None:
    found = SystemNumbers().random(100_000)
    assert found.min() >= 0
    assert found.max() < 1
    assert np.histogram(found, bins=10, range=(0, 1))[0] == pytest.approx([10_000] * 10, rel=0.06)
    assert not np.array_equal(found, SystemNumbers().random(100_000))
    assert [len(SystemNumbers().standard_normal(size)) for size in (0, 1, 2, 7)] == [0, 1, 2, 7]


def test_a_short_update_stays_as_it_is_and_a_long_one_keeps_its_direction() -> None:
    update = torch.tensor([3.0, -4.0])
    assert torch.equal(clipped(update, 5.0), update)
    assert torch.equal(clipped(update, math.inf), update)
    assert torch.equal(clipped(torch.zeros(2), 1e-9), torch.zeros(2))
    torch.testing.assert_close(clipped(update, 1.0), update / 5)


@accounted
@pytest.mark.parametrize(
    ("noise", "sampling", "rounds", "delta"), [(1.0, 0.1, 60, 1e-5), (0.7, 1.0, 7, 1e-3), (3.0, 0.3, 1000, 1e-6)]
)
def test_epsilon_is_that_of_dp_accounting(noise: float, sampling: float, rounds: int, delta: float) -> None:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = PoissonSampledDpEvent(sampling, GaussianDpEvent(noise))
    accountant = RdpAccountant().compose(SelfComposedDpEvent(event, rounds))
    assert epsilon(noise, sampling, rounds, delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-12)
    assert epsilon(0.0, sampling, rounds, delta) == math.inf


@accounted
@pytest.mark.parametrize("expected", [10.0, 1000.0])
def test_a_clip_that_follows_a_quantile_costs_nothing_more(expected: float) -> None:
    """A client moves the sum by a clip and the count by a half: two Gaussians, composed by dp-accounting itself."""
    from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    total, count = DP(noise=1.3, quantile=0.5).split(expected)
    both = ComposedDpEvent([GaussianDpEvent(total), GaussianDpEvent(2 * count)])
    accountant = RdpAccountant().compose(PoissonSampledDpEvent(0.2, both), 40)
    assert epsilon(1.3, 0.2, 40, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)


def test_the_clip_finds_its_quantile() -> None:
    lengths = stream(3, "lengths").lognormal(mean=1.0, size=500)
    dp, clip, numbers = DP(clip=100.0, quantile=0.7), 100.0, stream(4, "noise")
    for _ in range(200):
        clip = next_clip(dp, clip, lengths.tolist(), 500.0, numbers)
    assert np.mean(lengths <= clip) == pytest.approx(0.7, abs=0.05)
    assert next_clip(DP(), 2.0, [1.0], 1.0, numbers) == 2.0


def private(method: str) -> Experiment:
    return load("quickstart", parse_method(method))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("scaffold+dp", ["scaffold", "control variates"]),
        ("drift_correction+dp", ["scaffold", "control variates"]),
        ("feddyn+dp", ["feddyn", "duals"]),
        ("fednova+dp", ["fednova", "number of steps"]),
        ("fedcm+dp", ["fedcm", "number of steps"]),
        ("fedexp+dp", ["exp", "lengths of single clients' updates"]),
        ("fedavg/nur+dp", ["nur", "lengths of single clients' updates"]),
        ("fedavg+dp(clip=inf)", ["dp.clip", "give a finite one"]),
        ("fedavg+dp(noise=0)+finetune", ["finetune", "not noised"]),
        ("fedavg+dp(noise=0)+local", ["local", "not noised"]),
        ("fedavg+dp(noise=0)@lda", ["the head's sums are not noised"]),
        ("fedavg+dp(clip=inf, noise=0, quantile=0.5)", ["dp.clip", "give a finite one"]),
    ],
)
def test_what_tells_more_than_the_noised_mean_is_refused_by_name(method: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        private(method)
    lines = caught.value.problems  # a head says so, too
    assert any(all(word in line for word in words) for line in lines), lines


class Telling(Defaults):
    """A user's correction that sends something more."""

    def finish(self, trace: object, server: State, client: State) -> tuple[State, State]:
        return client, {"update": torch.zeros(2), "loss": torch.zeros(())}


def test_a_users_algorithm_that_sends_more_is_refused_with_what_it_sends() -> None:
    experiment = SimpleNamespace(parts={}, correction=Telling(), server=Average(), data=SimpleNamespace(score="test"))
    assert "Telling also uses loss of single clients" in str(DP(noise=0).clash(experiment))


def test_without_the_accountant_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentFault, match="extra 'privacy': pip install"):
        private("fedavg+dp")
    assert private("fedavg+dp(noise=0)").parts == {"dp": DP(noise=0)}


def test_all_that_an_update_can_be_told_from_is_the_mean() -> None:
    """Adding a client moves the noiseless sum by no more than the clip, however long its update is."""
    others = [torch.ones(3), -2 * torch.ones(3)]

    def total(updates: list[Tensor]) -> Tensor:
        return noised_mean(updates, torch.zeros(3, dtype=torch.float64), 0.5, 0.0, 1.0, stream(0, "noise"))

    for length in (0.1, 1.0, 1e30):
        moved = total([*others, length * torch.tensor([0.0, 1.0, 0.0])]) - total(others)
        assert float(moved.norm()) <= 0.5 * (1 + 1e-12)
