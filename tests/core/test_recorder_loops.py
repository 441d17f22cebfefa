"""Every way of training that could be recorded wrongly is recorded exactly, or refused in one line; none is silent."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

import ecgr
from ecgr.core import guards
from support.loops import Loop, Run, check_exact, clip, clip_data, halves, hooks, mlp, sgd
from support.recorder_loops import EXACT, ON_ENTRY, REFUSED, load_state_dict_first, weights_clipped_through_data

LATE: list[Run] = [weights_clipped_through_data, load_state_dict_first]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("run", EXACT, ids=lambda run: run.__name__)
def test_what_can_be_recorded_is_recorded_exactly(run: Run, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a device that answers late."""
    if not at_once:
        monkeypatch.setattr(guards, "AT_ONCE", frozenset())
    loop = Loop()
    run(loop)
    check_exact(loop)


@pytest.mark.parametrize("run", REFUSED, ids=lambda run: run.__name__)
def test_what_cannot_be_recorded_is_refused_in_one_line(run: Run) -> None:
    loop = Loop()
    with pytest.raises(ecgr.RecordingError, match=REFUSED[run]) as refusal:
        run(loop)
    line = str(refusal.value)
    assert "\n" not in line
    assert line.startswith("Recorder: ")
    assert "; " in line  # what happened; what to do
    if run not in ON_ENTRY:
        assert loop.recorder is not None
        asks: list[Callable[[ecgr.Recorder], object]] = [
            lambda r: r.regulated(ecgr.ECGR()),
            lambda r: r.plain,
        ]
        for ask in asks:
            with pytest.raises(ecgr.RecordingError) as again:
                ask(loop.recorder)
            assert str(again.value) == line


def test_nothing_is_left_on_any_optimiser_however_a_block_ends() -> None:
    loop = Loop()
    first, second = halves(loop)
    with loop.record([first, second]):
        assert hooks(first) == hooks(second) == 2
    with pytest.raises(ecgr.RecordingError), loop.record([first, second]):
        clip(loop.model)
    with pytest.raises(ecgr.RecordingError), loop.record([first, SGD(mlp().parameters(), lr=0.1)]):
        pass
    assert hooks(first) == hooks(second) == 0


def test_a_refusal_comes_before_the_step_that_would_be_wrong() -> None:
    """The optimiser has not moved anything yet, and refuses again if it is asked again."""
    loop = Loop()
    optimizer = sgd(loop)
    with pytest.raises(ecgr.RecordingError, match="between step 1 and step 2"), loop.record(optimizer):
        loop.step(optimizer)
        clip(loop.model)
        clipped = loop.flat()
        for _ in range(2):
            with pytest.raises(ecgr.RecordingError, match="between step 1 and step 2"):
                loop.step(optimizer)
        assert torch.equal(loop.flat(), clipped)


def test_an_error_under_way_is_never_masked() -> None:
    loop = Loop()
    optimizer = sgd(loop)
    with pytest.raises(ZeroDivisionError), loop.record(optimizer) as recorder:
        loop.step(optimizer, 2)
        clip(loop.model)
        raise ZeroDivisionError
    assert hooks(optimizer) == 0
    with pytest.raises(ecgr.RecordingError, match="after the last recorded step"):
        recorder.regulated(ecgr.ECGR())


def test_a_step_that_fails_halfway_is_found_out() -> None:
    class Halfway(SGD):
        def step(self, closure: Any = None) -> Any:
            loss = super().step(closure)
            if fails:
                raise KeyboardInterrupt
            return loss

    fails, loop = False, Loop()
    optimizer = Halfway(loop.model.parameters(), lr=0.1)
    with pytest.raises(KeyboardInterrupt), loop.record(optimizer) as recorder:
        loop.step(optimizer, 2)
        fails = True
        loop.step(optimizer)
    with pytest.raises(ecgr.RecordingError, match="after step 2 began and did not finish"):
        recorder.regulated(ecgr.ECGR())


def test_a_failed_step_that_is_caught_is_refused_on_leaving() -> None:
    loop = Loop()
    optimizer = torch.optim.LBFGS(loop.model.parameters())

    def closure() -> float:
        raise MemoryError

    with pytest.raises(ecgr.RecordingError, match="let the error end the block"), loop.record(optimizer):
        for _ in range(3):
            with contextlib.suppress(MemoryError):
                optimizer.step(closure)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("plain_first", [True, False])
def test_a_subclass_that_calls_its_base_class_takes_one_step(plain_first: bool) -> None:
    """torch hooks a class's ``step`` as it makes the first of its objects: the base class's and the subclass's."""

    class Base(Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})

        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            for p in self.param_groups[0]["params"]:
                p.sub_(p.grad, alpha=0.1)

    class Decayed(Base):
        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            for p in self.param_groups[0]["params"]:
                p.mul_(0.9)
            super().step(closure)
            for p in self.param_groups[0]["params"]:
                p.clamp_(-0.3, 0.3)

    loop = Loop()
    if plain_first:
        Base(loop.model.parameters())
    optimizer = Decayed(loop.model.parameters())
    with loop.record(optimizer):
        loop.step(optimizer, 4)
    check_exact(loop)


def test_a_refused_recorder_can_record_again() -> None:
    loop = Loop()
    optimizer = sgd(loop)
    recorder = loop.record(optimizer)
    with pytest.raises(ecgr.RecordingError), recorder:
        clip(loop.model)
    loop.start = loop.flat()
    with recorder:
        loop.step(optimizer, 3)
    check_exact(loop)


def test_a_recorder_that_could_not_begin_has_nothing_recorded() -> None:
    """Not the steps of the block before beside the start of this one."""
    loop = Loop()
    optimizer = sgd(loop)
    with loop.record(optimizer) as recorder:
        loop.step(optimizer, 2)
    optimizer.add_param_group({"params": nn.Linear(2, 2).parameters()})
    with pytest.raises(ecgr.RecordingError, match="also owns"), recorder:
        pass
    assert recorder.steps == 0
    with pytest.raises(ecgr.RecordingError, match="no optimiser step was recorded"):
        recorder.regulated(ecgr.ECGR())


def test_asked_inside_of_the_block_it_looks_first() -> None:
    loop = Loop()
    optimizer = sgd(loop)
    with pytest.raises(ecgr.RecordingError, match="after step 3"), loop.record(optimizer) as recorder:
        loop.step(optimizer, 3)
        assert len(recorder.regulated(ecgr.ECGR()).flat) == len(loop.start)
        clip_data(loop.model)
        recorder.regulated(ecgr.ECGR())


@pytest.mark.parametrize("run", REFUSED, ids=lambda run: run.__name__)
def test_a_device_that_answers_late_refuses_as_much(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen between steps elsewhere is asked for on leaving the block."""
    monkeypatch.setattr(guards, "AT_ONCE", frozenset())
    loop = Loop()
    line = r"a parameter was changed (between step 1|before the first)" if run in LATE else None
    with pytest.raises(ecgr.RecordingError, match=line):
        run(loop)
    assert run not in LATE or len(loop.oracle) == 3  # the loop was not held up


def test_version_counters_know_of_everything_but_data() -> None:
    """What the simulator uses for its own loop; the values are compared where a counter moved, and on leaving."""
    for spoil, times in ((clip, 1), (clip_data, 3)):
        loop = Loop()
        optimizer = sgd(loop)
        with pytest.raises(ecgr.RecordingError, match="was changed"), loop.record(optimizer, checks="versions"):
            for _ in range(3):
                loop.step(optimizer)
                spoil(loop.model)
        assert len(loop.oracle) == times


def test_parameters_that_are_nan_have_not_moved() -> None:
    loop = Loop()
    optimizer = sgd(loop)
    with loop.record(optimizer) as recorder:
        loop.step(optimizer, 2)
        for p in loop.model.parameters():
            p.grad = torch.full_like(p, torch.nan)
        optimizer.step()
        loop.step(optimizer, 2)
    with pytest.warns(ecgr.NotFiniteWarning, match="training diverged") as warned:
        update = recorder.regulated(ecgr.ECGR())
    assert len(warned) == 1
    assert "\n" not in str(warned[0].message)
    assert warned[0].filename == __file__
    assert update.flat.isnan().all()
    assert update.regulation.metrics["unregulated"] == 1.0
