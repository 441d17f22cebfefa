"""Every way of training that could be recorded wrongly is recorded exactly, or refused in one line; none is silent."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

import ecgr
from ecgr.core import watch
from support.loops import Loop, displacements, hooks, mlp
from support.optimizers import SAM, AcceleratedOptimizer, BareLookahead, Lookahead, ScheduleFreeSGD

Run = Callable[[Loop], object]
CHANGED = "was changed"


def sgd(loop: Loop, lr: float = 0.1) -> SGD:
    return SGD(loop.model.parameters(), lr=lr, momentum=0.9)


def halves(loop: Loop) -> tuple[Optimizer, Optimizer]:
    """An optimiser for each layer."""
    return SGD(loop.model[0].parameters(), lr=0.1), Adam(loop.model[2].parameters(), lr=0.01)  # type: ignore[index]


@torch.no_grad()
def clip(model: nn.Module, at: float = 0.2) -> None:
    for p in model.parameters():
        p.clamp_(-at, at)


def clip_data(model: nn.Module, at: float = 0.2) -> None:
    """As in many a WGAN: no version counter knows of it."""
    for p in model.parameters():
        p.data.clamp_(-at, at)


# --- exact ------------------------------------------------------------------------------------------------------------


def two_optimisers(loop: Loop) -> None:
    first, second = halves(loop)
    with loop.record([first, second]):
        for _ in range(4):
            loop.step(first)
            loop.step(second)
        loop.step(second)


def two_optimisers_of_the_same_parameters(loop: Loop) -> None:
    first, second = sgd(loop), Adam(loop.model.parameters(), lr=0.01)
    with loop.record((first, second, first)):
        loop.step(first, 2)
        loop.step(second, 2)
        loop.step(first)


def a_hook_that_clips(loop: Loop) -> None:
    optimizer = sgd(loop)
    optimizer.register_step_post_hook(lambda *_: clip(loop.model))
    with loop.record(optimizer):
        loop.step(optimizer, 5)


def a_projection_that_changes_nothing(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        for _ in range(3):
            loop.step(optimizer)
            clip(loop.model, at=100.0)
            clip_data(loop.model, at=100.0)


def weights_swapped_for_evaluation_and_put_back(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        for _ in range(3):
            loop.step(optimizer)
            kept = [p.detach().clone() for p in loop.model.parameters()]
            for p in loop.model.parameters():
                p.data.zero_()
            for p, old in zip(loop.model.parameters(), kept, strict=True):
                p.data = old


def lookahead_and_what_it_wraps(loop: Loop) -> None:
    """The outer call is the step."""
    optimizer = Lookahead(sgd(loop))
    with loop.record([optimizer.optimizer, optimizer]):
        loop.step(optimizer, 5)


def lookahead_itself(loop: Loop) -> None:
    optimizer = Lookahead(sgd(loop))
    with loop.record(optimizer):
        loop.step(optimizer, 5)


def sam_by_its_base_optimiser(loop: Loop) -> None:
    optimizer = SAM(sgd(loop))
    with loop.record(optimizer.optimizer):
        for _ in range(4):
            loop.gradients()
            before = loop.flat()
            optimizer.first_step()
            loop.gradients()
            optimizer.second_step()
            loop.oracle.append(before - loop.flat())


def schedule_free_left_in_training_mode(loop: Loop) -> None:
    optimizer = ScheduleFreeSGD(loop.model.parameters())
    with loop.record(optimizer):
        loop.step(optimizer, 5)


def layers_frozen_in_the_middle(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.get_submodule("0").requires_grad_(False)
        loop.step(optimizer, 3)


def frozen_layers_and_a_teacher_that_follows(loop: Loop) -> None:
    """Frozen parameters may move as buffers do: a momentum encoder inside of the model."""
    teacher = mlp().requires_grad_(False)
    loop.model.add_module("teacher", teacher)
    loop.model.forward = nn.Sequential(*list(loop.model)[:3]).forward  # type: ignore[call-overload]
    optimizer = sgd(loop)
    with loop.record(optimizer):
        for _ in range(3):
            loop.step(optimizer)
            with torch.no_grad():
                for slow, fast in zip(teacher.parameters(), loop.model.parameters(), strict=False):
                    slow.lerp_(fast, 0.1)


def optimiser_state_loaded_in_the_middle(loop: Loop) -> None:
    optimizer = sgd(loop)
    state = optimizer.state_dict()
    with loop.record(optimizer):
        loop.step(optimizer, 3)
        optimizer.load_state_dict(state)
        loop.step(optimizer, 2)


def accelerate_that_accumulates(loop: Loop) -> None:
    """Half of the calls are no steps; the oracle counts those that are."""
    optimizer = AcceleratedOptimizer(sgd(loop), accumulate=2)
    with loop.record(optimizer):
        loop.step(optimizer, 6)
    loop.oracle = loop.oracle[1::2]


EXACT: list[Run] = [
    two_optimisers,
    two_optimisers_of_the_same_parameters,
    a_hook_that_clips,
    a_projection_that_changes_nothing,
    weights_swapped_for_evaluation_and_put_back,
    lookahead_itself,
    lookahead_and_what_it_wraps,
    sam_by_its_base_optimiser,
    schedule_free_left_in_training_mode,
    layers_frozen_in_the_middle,
    frozen_layers_and_a_teacher_that_follows,
    optimiser_state_loaded_in_the_middle,
    accelerate_that_accumulates,
]


def check_exact(loop: Loop) -> None:
    recorder = loop.recorder
    assert recorder is not None
    assert recorder.steps == len(loop.oracle) > 1
    for recorded, true in zip(displacements(recorder), loop.oracle, strict=True):
        assert recorded.dtype == true.dtype
        assert torch.equal(recorded, true)
    assert torch.equal(recorder.plain, loop.start - loop.flat())
    end = loop.flat()
    recorder.regulated(ecgr.ECGR(beta=1.0)).apply_(loop.model)
    assert torch.allclose(loop.flat(), end, rtol=0, atol=1e-6)


@pytest.mark.parametrize("run", EXACT, ids=lambda run: run.__name__)
def test_what_can_be_recorded_is_recorded_exactly(run: Run) -> None:
    loop = Loop()
    run(loop)
    check_exact(loop)


# --- refused ----------------------------------------------------------------------------------------------------------


def an_unrecorded_second_optimiser_of_other_layers(loop: Loop) -> None:
    first, second = halves(loop)
    with loop.record(first):
        for _ in range(3):
            loop.step(first)
            loop.step(second)


def an_unrecorded_second_optimiser_of_the_same_parameters(loop: Loop) -> None:
    first, second = sgd(loop), Adam(loop.model.parameters(), lr=0.01)
    with loop.record(first):
        loop.step(second)
        loop.step(first)


def an_unrecorded_second_optimiser_after_the_last_step(loop: Loop) -> None:
    first, second = halves(loop)
    with loop.record(second):
        loop.step(second, 3)
        loop.step(first)


def an_optimiser_made_anew(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        for _ in range(2):
            loop.step(optimizer, 3)
            optimizer = sgd(loop)


def an_optimiser_made_anew_at_once(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        optimizer = sgd(loop)
        loop.step(optimizer, 3)


def weights_clipped_after_each_step(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        for _ in range(3):
            loop.step(optimizer)
            clip(loop.model)


def weights_clipped_through_data(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        for _ in range(3):
            loop.step(optimizer)
            clip_data(loop.model)


def weights_clipped_once_at_the_end(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 3)
        clip_data(loop.model)


def one_number_moved_by_one_ulp(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 3)
        bias = loop.model.get_parameter("2.bias").data
        bias[1] = torch.nextafter(bias[1], torch.tensor(9.0))
        loop.step(optimizer)


def the_inner_optimiser_of_lookahead(loop: Loop) -> None:
    optimizer = Lookahead(sgd(loop))
    with loop.record(optimizer.optimizer):
        loop.step(optimizer, 5)


def lookahead_without_hooks(loop: Loop) -> None:
    optimizer = BareLookahead(sgd(loop))
    with loop.record(optimizer):
        loop.step(optimizer, 4)


def sam_by_two_calls_without_its_step(loop: Loop) -> None:
    class Whole(Lookahead):
        """Has hooks and moves weights, but not in `step`."""

    optimizer = Whole(sgd(loop))
    with loop.record(optimizer):
        for _ in range(3):
            loop.gradients()
            optimizer.optimizer.step()


def schedule_free_in_evaluation_mode_at_the_end(loop: Loop) -> None:
    optimizer = ScheduleFreeSGD(loop.model.parameters())
    with loop.record(optimizer):
        loop.step(optimizer, 5)
        optimizer.eval()


def schedule_free_evaluated_in_the_middle(loop: Loop) -> None:
    optimizer = ScheduleFreeSGD(loop.model.parameters())
    with loop.record(optimizer):
        for _ in range(40):
            loop.step(optimizer)
            optimizer.eval()
            optimizer.train()  # comes back but for rounding


def load_state_dict_first(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.model.load_state_dict({name: p + 1 for name, p in loop.model.state_dict().items()})
        loop.step(optimizer, 3)


def load_state_dict_in_the_middle(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        best = {name: p.clone() for name, p in loop.model.state_dict().items()}
        loop.step(optimizer, 3)
        loop.model.load_state_dict(best)
        loop.step(optimizer)


def load_state_dict_at_the_end(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        best = {name: p.clone() for name, p in loop.model.state_dict().items()}
        loop.step(optimizer, 3)
        loop.model.load_state_dict(best)


def the_update_applied_inside_of_the_block(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer) as steps:
        loop.step(optimizer, 4)
        steps.regulated(ecgr.ECGR()).apply_(loop.model)


def a_parameter_of_another_shape(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.get_parameter("2.weight").data = torch.zeros(1, 6)


def a_model_made_float64(loop: Loop) -> None:
    """The values stay; what comes after would be rounded to float32."""
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.double()
        loop.step(optimizer)


def one_number_moved_beside_nan(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.model.get_parameter("0.weight").grad = torch.full((6, 4), torch.nan)
        optimizer.step()
        loop.model.get_parameter("0.weight").data[2, 2] = 1.0
        optimizer.step()


def the_optimisers_parameters_exchanged(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer)
        optimizer.param_groups[0]["params"] = [nn.Parameter(p.detach().clone()) for p in loop.model.parameters()]
        loop.step(optimizer)


def a_parameter_replaced(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        last = loop.model.get_submodule("2")
        last.weight = nn.Parameter(last.weight.detach().clone())  # type: ignore[operator]
        loop.step(optimizer, 2)


def parameters_assigned_by_load_state_dict(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.load_state_dict({n: p.clone() for n, p in loop.model.state_dict().items()}, assign=True)


def a_layer_taken_out(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        del loop.model[2]  # type: ignore[operator]


def a_parametrization_registered(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        nn.utils.parametrizations.weight_norm(loop.model.get_submodule("2"))


def layers_unfrozen_in_the_middle(loop: Loop) -> None:
    loop.model.get_submodule("0").requires_grad_(False)
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.get_submodule("0").requires_grad_(True)
        loop.step(optimizer, 2)


def layers_unfrozen_for_a_while(loop: Loop) -> None:
    loop.model.get_submodule("0").requires_grad_(False)
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.model.get_submodule("0").requires_grad_(True)
        loop.step(optimizer, 2)
        loop.model.get_submodule("0").requires_grad_(False)


def layers_unfrozen_at_the_end(loop: Loop) -> None:
    loop.model.get_submodule("0").requires_grad_(False)
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.get_submodule("0").requires_grad_(True)


def a_layer_added_in_the_middle(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        layer = nn.Linear(2, 2)
        loop.model.add_module("3", layer)
        optimizer.add_param_group({"params": layer.parameters()})
        loop.step(optimizer, 2)


def a_layer_added_and_never_trained(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.add_module("3", nn.Linear(2, 2))


def a_frozen_layer_with_a_gradient_left(loop: Loop) -> None:
    loop.gradients()
    loop.model.get_submodule("0").requires_grad_(False)
    optimizer = sgd(loop)
    with loop.record(optimizer):
        optimizer.step()


def an_optimiser_of_another_model(loop: Loop) -> None:
    with loop.record(SGD(mlp().parameters(), lr=0.1)):
        pass


def an_optimiser_made_before_the_parameters_were_replaced(loop: Loop) -> None:
    optimizer = sgd(loop)
    loop.model.load_state_dict({n: p.clone() for n, p in loop.model.state_dict().items()}, assign=True)
    with loop.record(optimizer):
        pass


def an_optimiser_of_two_models(loop: Loop) -> None:
    head = nn.Linear(2, 2)
    with loop.record(SGD([*loop.model.parameters(), *head.parameters()], lr=0.1)):
        pass


def one_of_two_optimisers_is_of_another_model(loop: Loop) -> None:
    with loop.record([sgd(loop), SGD(mlp().parameters(), lr=0.1)]):
        pass


REFUSED: dict[Run, str] = {
    an_unrecorded_second_optimiser_of_other_layers: r"`2.weight` was changed between step 1 and step 2",
    an_unrecorded_second_optimiser_of_the_same_parameters: r"`0.weight` was changed before the first recorded step",
    an_unrecorded_second_optimiser_after_the_last_step: r"`0.weight` was changed after the last recorded step",
    an_optimiser_made_anew: r"changed after the last recorded step \(step 3\), by .* one made anew",
    an_optimiser_made_anew_at_once: "was changed but no step was recorded",
    weights_clipped_after_each_step: r"changed between step 1 and step 2, .* clip in a step post hook",
    weights_clipped_through_data: "changed between step 1 and step 2",
    weights_clipped_once_at_the_end: "changed after the last recorded step",
    one_number_moved_by_one_ulp: "`2.bias` was changed between step 3 and step 4",
    the_inner_optimiser_of_lookahead: "changed between step 2 and step 3, .* the wrapper instead of what it wraps",
    lookahead_without_hooks: "BareLookahead calls no step hooks",
    sam_by_two_calls_without_its_step: "was changed but no step was recorded",
    schedule_free_in_evaluation_mode_at_the_end: r"after the last recorded step .* schedule-free's eval\(\)",
    schedule_free_evaluated_in_the_middle: r"changed between step \d+ and step \d+",
    load_state_dict_first: "changed before the first recorded step",
    load_state_dict_in_the_middle: "changed between step 3 and step 4, .* load_state_dict",
    load_state_dict_at_the_end: "changed after the last recorded step",
    the_update_applied_inside_of_the_block: r"changed after the last recorded step .* apply and evaluate outside of it",
    a_parameter_of_another_shape: "`2.weight` was changed after the last recorded step",
    a_model_made_float64: "`0.weight` was changed between step 2 and step 3, .* another dtype",
    one_number_moved_beside_nan: "`0.weight` was changed between step 1 and step 2",
    the_optimisers_parameters_exchanged: r"SGD also owns a parameter of shape \(6, 4\) that is not this model's",
    a_parameter_replaced: "`2.weight` was replaced by another object",
    parameters_assigned_by_load_state_dict: r"replaced by another object .*load_state_dict\(assign=True\)",
    a_layer_taken_out: "`2.weight` was taken out of the model",
    a_parametrization_registered: "`2.weight` was taken out of the model",
    layers_unfrozen_in_the_middle: "`0.weight` was unfrozen while recording",
    layers_unfrozen_for_a_while: "`0.weight` was unfrozen while recording",
    layers_unfrozen_at_the_end: "`0.weight` was unfrozen while recording",
    a_layer_added_in_the_middle: "`3.weight` was added to the model while recording",
    a_layer_added_and_never_trained: "`3.weight` was added to the model while recording",
    a_frozen_layer_with_a_gradient_left: "`0.weight` is frozen but has a gradient left",
    an_optimiser_of_another_model: "SGD owns no trainable parameter of this model",
    an_optimiser_made_before_the_parameters_were_replaced: "before this model's parameters were replaced",
    an_optimiser_of_two_models: r"SGD also owns a parameter of shape \(2, 2\) that is not this model's",
    one_of_two_optimisers_is_of_another_model: "SGD owns no trainable parameter of this model",
}
ON_ENTRY = {
    an_optimiser_of_another_model,
    an_optimiser_made_before_the_parameters_were_replaced,
    an_optimiser_of_two_models,
    one_of_two_optimisers_is_of_another_model,
}


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
            lambda r: r.sum_of([0]),
        ]
        for ask in asks:
            with pytest.raises(ecgr.RecordingError) as again:
                ask(loop.recorder)
            assert str(again.value) == line


# --- when, and what else --------------------------------------------------------------------------------------------


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


LATE = [weights_clipped_through_data, load_state_dict_first]


@pytest.mark.parametrize("run", LATE, ids=lambda run: run.__name__)
def test_a_device_that_answers_late_is_asked_on_leaving_the_block(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "AT_ONCE", frozenset())
    loop = Loop()
    with pytest.raises(ecgr.RecordingError, match=r"a parameter was changed (between step 1|before the first)"):
        run(loop)
    assert len(loop.oracle) == 3  # the loop was not held up


@pytest.mark.parametrize("run", [run for run in REFUSED if run not in LATE], ids=lambda run: run.__name__)
def test_a_device_that_answers_late_refuses_as_much(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "AT_ONCE", frozenset())
    with pytest.raises(ecgr.RecordingError):
        run(Loop())


@pytest.mark.parametrize("run", EXACT, ids=lambda run: run.__name__)
def test_a_device_that_answers_late_refuses_nothing_else(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "AT_ONCE", frozenset())
    loop = Loop()
    run(loop)
    check_exact(loop)


def test_version_counters_know_of_everything_but_data() -> None:
    """What the simulator uses for its own loop; the values are compared where a counter moved, and on leaving."""
    for spoil, times in ((clip, 1), (clip_data, 3)):
        loop = Loop()
        optimizer = sgd(loop)
        with pytest.raises(ecgr.RecordingError, match=CHANGED), loop.record(optimizer, checks="versions"):
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


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["dense", "disk", "replay"])
def test_a_float64_model_at_a_small_learning_rate_is_recorded_in_float64(store: str) -> None:
    """In float32 such steps vanish beside the weights: a step of 1e-9 beside a weight of 0.4 is lost in rounding."""
    loop = Loop(mlp().double())
    optimizer = SGD(loop.model.parameters(), lr=1e-9, momentum=0.9)

    def run() -> None:
        loop.oracle.clear()
        loop.restart()
        loop.step(optimizer, 5)

    with loop.record(optimizer, store=store, replay=run):
        run()
    if store != "replay":
        check_exact(loop)
    oracle = torch.stack(loop.oracle)
    assert loop.recorder is not None
    update = loop.recorder.regulated(ecgr.ECGR(beta=0.2))
    weights = update.regulation.weights
    expected = weights @ oracle
    expected *= oracle.sum(dim=0).norm() / expected.norm()
    assert update.flat.dtype == update.start.dtype == torch.float64
    assert float((update.flat - expected).norm()) <= 1e-9 * float(expected.norm())
    update.apply_(loop.model)
    assert torch.equal(loop.flat(), update.start - update.flat)
    assert all(t.dtype == torch.float64 for t in update.as_state_dict().values())


@pytest.mark.parametrize("store", ["bf16", "int8"])
def test_a_store_of_fewer_bits_keeps_small_float64_steps(store: str) -> None:
    loop = Loop(mlp().double())
    optimizer = SGD(loop.model.parameters(), lr=1e-9)
    with loop.record(optimizer, store=store) as recorder:
        loop.step(optimizer, 5)
    update = recorder.regulated(ecgr.ECGR())
    assert update.flat.dtype == torch.float64
    assert float(update.flat.norm()) == pytest.approx(float(torch.stack(loop.oracle).sum(dim=0).norm()), rel=1e-6)


def test_bfloat16_parameters_are_recorded_in_float32_exactly() -> None:
    loop = Loop(mlp().bfloat16())
    optimizer = SGD(loop.model.parameters(), lr=0.5)
    with loop.record(optimizer):
        loop.step(optimizer, 5)
    assert loop.recorder is not None
    assert all(torch.equal(a, b) for a, b in zip(displacements(loop.recorder), loop.oracle, strict=True))
    update = loop.recorder.regulated(ecgr.ECGR())
    update.apply_(loop.model)
    assert torch.equal(loop.flat(), (update.start - update.flat).bfloat16().float())


def test_a_bfloat16_model_that_is_clipped_is_refused() -> None:
    loop = Loop(mlp().bfloat16())
    optimizer = SGD(loop.model.parameters(), lr=0.5)
    with pytest.raises(ecgr.RecordingError, match="between step 2"), loop.record(optimizer):
        loop.step(optimizer, 2)
        clip_data(loop.model)
        loop.step(optimizer)
