"""Every entry of REGULATORS: pure, finite on anything, norm-preserving. A new entry is tested by existing."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecgr import Recorder
from ecgr.config.registry import parameters_of
from ecgr.core.geometry import Geometry, Regulation, Regulator
from ecgr.core.regulators import REGULATORS
from support.stepsets import ALL, GENERIC, Steps, make, seeds

NOT_SCALE_FREE = {"random_half"}  # draws from the bytes of the matrix: pure, but another scale is another draw

DAMPING = sorted(name for name, entry in REGULATORS.items() if "beta" in parameters_of(entry))

every = pytest.mark.parametrize("name", sorted(REGULATORS))


def variants(name: str) -> list[Regulator]:
    """The entry with its defaults, and with each end of every share it takes."""
    entry = REGULATORS[name]
    made = [entry()]
    parameters = parameters_of(entry)
    if "beta" in parameters:
        made += [entry(beta=0.0), entry(beta=0.5), entry(beta=1.0)]
    if "keep" in parameters:
        made += [entry(keep=0.01), entry(keep=1.0)]
    return made


def geometry(steps: Steps) -> Geometry:
    return Geometry(gram=torch.from_numpy(steps @ steps.T))


def check_shape(regulation: Regulation, T: int) -> None:
    assert regulation.coefficients.shape == (T,)
    assert regulation.coefficients.dtype == torch.float64
    assert torch.isfinite(regulation.coefficients).all()
    assert regulation.kept
    assert len(set(regulation.kept)) == len(regulation.kept)
    assert all(isinstance(i, int) and 0 <= i < T for i in regulation.kept)
    assert all(isinstance(v, float) and np.isfinite(v) for v in regulation.metrics.values())


@every
@given(kind=st.sampled_from(sorted(ALL)), seed=seeds, T=st.integers(1, 30), d=st.integers(1, 10))
def test_on_any_set_it_is_a_pure_function_to_finite_numbers_and_no_longer_update(
    name: str, kind: str, seed: int, T: int, d: int
) -> None:
    """The same again from a copy that travelled; the input is left alone.

    On sets that cancel the plain norm is rounding, so the bound is relative to the steps laid end to end.
    """
    steps = make(kind, seed, T, d)
    end_to_end = float(np.linalg.norm(steps, axis=1).sum())
    plain = float(np.linalg.norm(steps.sum(axis=0)))
    for regulator in variants(name):
        given_geometry = geometry(steps)
        before = given_geometry.gram.clone()
        first = regulator(given_geometry)
        check_shape(first, T)
        assert abs(float(np.linalg.norm(first.coefficients.numpy() @ steps)) - plain) <= 1e-6 * end_to_end
        second = pickle.loads(pickle.dumps(regulator))(geometry(steps))
        assert torch.equal(first.coefficients, second.coefficients)
        assert (first.kept, first.metrics) == (second.kept, second.metrics)
        assert torch.equal(given_geometry.gram, before)


@every
@given(kind=st.sampled_from(sorted(GENERIC)), seed=seeds, T=st.integers(1, 30), d=st.integers(2, 10))
def test_the_norm_of_the_plain_update_is_kept(name: str, kind: str, seed: int, T: int, d: int) -> None:
    steps = make(kind, seed, T, d)
    plain = float(np.linalg.norm(steps.sum(axis=0)))
    for regulator in variants(name):
        c = regulator(geometry(steps)).coefficients
        gram = torch.from_numpy(steps @ steps.T)
        assert float(c @ gram @ c) ** 0.5 == pytest.approx(plain, rel=1e-9)
        assert float(np.linalg.norm(c.numpy() @ steps)) == pytest.approx(plain, rel=1e-9)


def alternating(T: int) -> Steps:
    """g, -g, g, -g, … and a zero for odd T."""
    return np.array(
        [[0.3 * sign, -0.7 * sign] for sign in (0 if i == T - 1 and T % 2 else (-1) ** i for i in range(T))]
    )


@every
@pytest.mark.parametrize(
    ("steps", "nothing"),
    [
        *((np.array([step]), True) for step in ([0.0, 0.0, 0.0], [1.0, -2.0, 0.5], [1e-30, 0.0, 0.0])),
        *((np.zeros((T, 2)), True) for T in (2, 3, 8)),
        *((np.tile([[0.3, -0.7, 0.2]], (T, 1)), False) for T in (2, 3, 8)),
        *((alternating(T), False) for T in (2, 4, 9)),
    ],
    ids=lambda given: f"{len(given)} steps" if isinstance(given, np.ndarray) else "",
)
def test_steps_without_a_choice_give_the_plain_update(name: str, steps: Steps, nothing: bool) -> None:
    """A single step, none of any length, equal ones, and ones that cancel, whose rounding nobody may blow up."""
    for regulator in variants(name):
        regulation = regulator(geometry(steps))
        check_shape(regulation, len(steps))
        np.testing.assert_allclose(regulation.coefficients.numpy() @ steps, steps.sum(axis=0), rtol=1e-9, atol=1e-6)
        assert regulation.changes_nothing or not nothing


@every
def test_inner_products_as_large_as_a_geometry_may_hold_give_no_nan(name: str) -> None:
    """The sum of all entries is just below the largest number. (Float32 steps come nowhere near it.)"""
    for regulator in variants(name):
        check_shape(regulator(Geometry(gram=torch.full((4, 4), 1e307, dtype=torch.float64))), 4)


@pytest.mark.parametrize("name", sorted(set(REGULATORS) - NOT_SCALE_FREE))
@given(
    kind=st.sampled_from(sorted(ALL)),
    seed=seeds,
    T=st.integers(1, 30),
    d=st.integers(1, 10),
    power=st.integers(-40, 40),
)
def test_the_coefficients_do_not_depend_on_the_scale_of_the_steps(
    name: str, kind: str, seed: int, T: int, d: int, power: int
) -> None:
    """Multiplying by a power of two is exact, so coefficients and choice have to be equal to the bit."""
    steps = make(kind, seed, T, d)
    for regulator in variants(name):
        one, other = regulator(geometry(steps)), regulator(geometry(steps * 2.0**power))
        assert one.kept == other.kept
        assert torch.equal(one.coefficients, other.coefficients)


@pytest.mark.parametrize("name", DAMPING)
def test_beta_one_changes_nothing_at_all(name: str) -> None:
    for kind in ALL:
        assert REGULATORS[name](beta=1.0)(geometry(make(kind, 11, 9, 4))).changes_nothing


@every
@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), float("inf"), "0.5", True, None])
def test_a_share_outside_its_range_is_refused_on_construction(name: str, bad: Any) -> None:
    for field in {"beta", "keep"} & set(parameters_of(REGULATORS[name])):
        with pytest.raises(ValueError, match=field):
            REGULATORS[name](**{field: bad})


@every
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_through_the_recorder_the_norm_is_kept_and_the_plain_update_with_one_step(name: str, momentum: float) -> None:
    for steps in (1, 2, 7):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
        with Recorder(model, optimizer) as recorder:
            for i in range(steps):
                optimizer.zero_grad()
                x = torch.linspace(-1, 1, 20).view(4, 5) * (i + 1)
                torch.nn.functional.cross_entropy(model(x), torch.tensor([0, 1, i % 2, 1])).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        for regulator in variants(name):
            update = recorder.regulated(regulator)
            assert float(update.flat.norm()) == pytest.approx(float(recorder.plain.norm()), rel=1e-5)
            if steps == 1:
                assert torch.equal(update.flat, recorder.plain)
