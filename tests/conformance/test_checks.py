"""The public checks: every entry of our own tables passes them, and each broken promise is found and named."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch

from ecgr.algorithms import ALGORITHMS, Defaults
from ecgr.core.geometry import Geometry, Regulation, identity
from ecgr.core.regulators import REGULATORS
from ecgr.core.stores import STORES, DenseStore
from ecgr.testing import check_algorithm, check_regulator, check_store
from support.problems import TRAINED

OURS: dict[str, Callable[[], None]] = {
    **{f"regulator {name}": partial(check_regulator, entry) for name, entry in REGULATORS.items()},
    **{f"algorithm {name}": partial(check_algorithm, ALGORITHMS[name]) for name in TRAINED},
    **{f"store {name}": partial(check_store, kind, None if kind.exact else 2e-2) for name, kind in STORES.items()},
}


@pytest.mark.parametrize("name", OURS)
def test_our_own_parts_keep_their_promises(name: str) -> None:
    OURS[name]()


def regulator(act: Callable[[Geometry], Any]) -> Any:
    @dataclass(frozen=True)
    class Broken:
        def __call__(self, geometry: Geometry) -> Any:
            return act(geometry)

    return Broken


def spoiled(geometry: Geometry) -> Regulation:
    geometry.gram.zero_()
    return identity(geometry.steps)


def drawn(geometry: Geometry) -> Regulation:
    return Regulation(torch.rand(geometry.steps, dtype=torch.float64), restore=False, kept=())


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda g: torch.ones(g.steps), "it gives a Tensor, not a Regulation"),
        (spoiled, "it changes the inner products"),
        (lambda g: identity(g.steps + 1), "one each"),
        (lambda g: Regulation(torch.ones(g.steps), False, ()), "they are float64"),
        (lambda g: Regulation(torch.ones(g.steps).double() / 0, False, ()), "a weight is not finite"),
        (lambda g: Regulation(torch.ones(g.steps).double(), False, (g.steps,)), "it names steps from 0 to 0 once"),
        (lambda g: Regulation(torch.ones(g.steps).double(), False, (0,), {"x": float("nan")}), "finite floats"),
        (lambda g: Regulation(torch.ones(g.steps).double(), True, (0,), {"gamma": 2.0}), "the length is restored"),
        (drawn, "does not give the same weights a second time"),
    ],
)
def test_a_regulator_that_breaks_a_promise_is_told_which(act: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        check_regulator(regulator(act))
    assert "\n" not in str(caught.value)


@dataclass
class Loose:
    share: float = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        return identity(geometry.steps)


def test_a_part_that_can_be_changed_is_told_so() -> None:
    with pytest.raises(AssertionError, match="frozen dataclass"):
        check_regulator(Loose)


def sending(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """An algorithm whose clients send their update, changed."""

    @dataclass(frozen=True)
    class Broken(Defaults):
        def finish(self, trace: Any, server: Any, client: Any) -> Any:
            return client, {"update": change(trace.update)}

    return Broken


@dataclass(frozen=True)
class NotTensors(Defaults):
    """Remembers a number."""

    def init_client(self, params: Any) -> Any:
        return {"rounds": 3}


@dataclass(frozen=True)
class OneMethod:
    """An ordinary dataclass that says one thing."""

    def gradient_term(self, params: Any, anchor: Any, server: Any, client: Any) -> Any:
        return 0.1 * (params - anchor)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (sending(lambda update: update.add_(1.0)), "it changes update in place"),
        (NotTensors, "init_client holds something else than tensors"),
        (sending(lambda update: update + 1.0), "clients that did not move at all make the server move"),
        (sending(lambda update: update * torch.rand(())), "the same round from the same state comes out differently"),
    ],
)
def test_an_algorithm_that_breaks_a_promise_is_told_which(algorithm: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_algorithm(algorithm)


def test_an_algorithm_may_leave_the_rest_to_the_defaults() -> None:
    check_algorithm(OneMethod)


class Aliased(DenseStore):
    """Keeps what it is given instead of a copy."""

    def append(self, displacement: Any) -> None:
        super().append(displacement)
        self._given = [*getattr(self, "_given", []), displacement]

    def combine(self, coefficients: Any) -> Any:
        if len(coefficients) != len(self._given):
            raise ValueError("each of")
        return (coefficients.float()[:, None] * torch.stack(self._given)).sum(dim=0)


def test_a_store_that_keeps_no_copies_is_found() -> None:
    with pytest.raises(AssertionError, match="a combination is off by"):
        check_store(Aliased)
