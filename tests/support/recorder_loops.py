"""Loops that look as if they could be recorded wrongly: some are recorded exactly, the others refused with a reason."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam

import ecgr
from support.loops import Loop, Run, clip, clip_data, halves, mlp, sgd
from support.optimizers import SAM, AcceleratedOptimizer, BareLookahead, Lookahead, ScheduleFreeSGD

Body = Callable[..., object]
OptimizerOf = Callable[[Loop], Any]
EXACT: list[Run] = []
REFUSED: dict[Run, str] = {}
"""What is said of each."""
ON_ENTRY: set[Run] = set()
"""Those that are refused before the first step."""


def recorded(body: Body, of: OptimizerOf | None) -> Run:
    """``body(loop, optimizer)`` inside of the block that records ``of(loop)``; without ``of`` it has a block itself."""
    if of is None:
        return body

    @wraps(body)
    def run(loop: Loop) -> None:
        optimizer = of(loop)
        with loop.record(optimizer):
            body(loop, optimizer)

    return run


def exact(of: OptimizerOf | None = sgd) -> Callable[[Body], None]:
    return lambda body: EXACT.append(recorded(body, of))


def refused(message: str, of: OptimizerOf | None = sgd, *, on_entry: bool = False) -> Callable[[Body], Run]:
    def register(body: Body) -> Run:
        run = recorded(body, of)
        REFUSED[run] = message
        ON_ENTRY.update([run] * on_entry)
        return run

    return register


def lookahead(loop: Loop) -> Lookahead:
    return Lookahead(sgd(loop))


def schedule_free(loop: Loop) -> ScheduleFreeSGD:
    return ScheduleFreeSGD(loop.model.parameters())


@exact(of=None)
def two_optimisers(loop: Loop) -> None:
    first, second = halves(loop)
    with loop.record([first, second]):
        for _ in range(4):
            loop.step(first)
            loop.step(second)
        loop.step(second)


@exact(of=None)
def two_optimisers_of_the_same_parameters(loop: Loop) -> None:
    first, second = sgd(loop), Adam(loop.model.parameters(), lr=0.01)
    with loop.record((first, second, first)):
        loop.step(first, 2)
        loop.step(second, 2)
        loop.step(first)


@exact(of=None)
def a_hook_that_clips(loop: Loop) -> None:
    optimizer = sgd(loop)
    optimizer.register_step_post_hook(lambda *_: clip(loop.model))
    with loop.record(optimizer):
        loop.step(optimizer, 5)


@exact()
def a_projection_that_changes_nothing(loop: Loop, optimizer: SGD) -> None:
    for _ in range(3):
        loop.step(optimizer)
        clip(loop.model, at=100.0)
        clip_data(loop.model, at=100.0)


@exact()
def weights_swapped_for_evaluation_and_put_back(loop: Loop, optimizer: SGD) -> None:
    for _ in range(3):
        loop.step(optimizer)
        kept = [p.detach().clone() for p in loop.model.parameters()]
        for p in loop.model.parameters():
            p.data.zero_()
        for p, old in zip(loop.model.parameters(), kept, strict=True):
            p.data = old


@exact(of=None)
def lookahead_and_what_it_wraps(loop: Loop) -> None:
    """The outer call is the step."""
    optimizer = Lookahead(sgd(loop))
    with loop.record([optimizer.optimizer, optimizer]):
        loop.step(optimizer, 5)


@exact(of=lookahead)
def lookahead_itself(loop: Loop, optimizer: Lookahead) -> None:
    loop.step(optimizer, 5)


@exact(of=None)
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


@exact(of=schedule_free)
def schedule_free_left_in_training_mode(loop: Loop, optimizer: ScheduleFreeSGD) -> None:
    loop.step(optimizer, 5)


@exact()
def layers_frozen_in_the_middle(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 2)
    loop.model.get_submodule("0").requires_grad_(False)
    loop.step(optimizer, 3)


@exact(of=None)
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


@exact(of=None)
def optimiser_state_loaded_in_the_middle(loop: Loop) -> None:
    optimizer = sgd(loop)
    state = optimizer.state_dict()
    with loop.record(optimizer):
        loop.step(optimizer, 3)
        optimizer.load_state_dict(state)
        loop.step(optimizer, 2)


@exact(of=None)
def accelerate_that_accumulates(loop: Loop) -> None:
    """Half of the calls are no steps; the oracle counts those that are."""
    optimizer = AcceleratedOptimizer(sgd(loop), accumulate=2)
    with loop.record(optimizer):
        loop.step(optimizer, 6)
    loop.oracle = loop.oracle[1::2]


@refused(r"`2.weight` was changed between step 1 and step 2", of=None)
def an_unrecorded_second_optimiser_of_other_layers(loop: Loop) -> None:
    first, second = halves(loop)
    with loop.record(first):
        for _ in range(3):
            loop.step(first)
            loop.step(second)


@refused(r"`0.weight` was changed before the first recorded step", of=None)
def an_unrecorded_second_optimiser_of_the_same_parameters(loop: Loop) -> None:
    first, second = sgd(loop), Adam(loop.model.parameters(), lr=0.01)
    with loop.record(first):
        loop.step(second)
        loop.step(first)


@refused(r"`0.weight` was changed after the last recorded step", of=None)
def an_unrecorded_second_optimiser_after_the_last_step(loop: Loop) -> None:
    first, second = halves(loop)
    with loop.record(second):
        loop.step(second, 3)
        loop.step(first)


@refused(r"changed after the last recorded step \(step 3\), by .* one made anew")
def an_optimiser_made_anew(loop: Loop, optimizer: SGD) -> None:
    for _ in range(2):
        loop.step(optimizer, 3)
        optimizer = sgd(loop)


@refused("was changed but no step was recorded")
def an_optimiser_made_anew_at_once(loop: Loop, optimizer: SGD) -> None:
    optimizer = sgd(loop)
    loop.step(optimizer, 3)


@refused(r"changed between step 1 and step 2, .* clip in a step post hook")
def weights_clipped_after_each_step(loop: Loop, optimizer: SGD) -> None:
    for _ in range(3):
        loop.step(optimizer)
        clip(loop.model)


@refused("changed between step 1 and step 2")
def weights_clipped_through_data(loop: Loop, optimizer: SGD) -> None:
    for _ in range(3):
        loop.step(optimizer)
        clip_data(loop.model)


@refused("changed after the last recorded step")
def weights_clipped_once_at_the_end(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 3)
    clip_data(loop.model)


@refused("`2.bias` was changed between step 3 and step 4")
def one_number_moved_by_one_ulp(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 3)
    bias = loop.model.get_parameter("2.bias").data
    bias[1] = torch.nextafter(bias[1], torch.tensor(9.0))
    loop.step(optimizer)


@refused("changed between step 2 and step 3, .* the wrapper instead of what it wraps", of=None)
def the_inner_optimiser_of_lookahead(loop: Loop) -> None:
    optimizer = Lookahead(sgd(loop))
    with loop.record(optimizer.optimizer):
        loop.step(optimizer, 5)


@refused("BareLookahead calls no step hooks", of=lambda loop: BareLookahead(sgd(loop)))
def lookahead_without_hooks(loop: Loop, optimizer: BareLookahead) -> None:
    loop.step(optimizer, 4)


@refused("was changed but no step was recorded", of=None)
def sam_by_two_calls_without_its_step(loop: Loop) -> None:
    class Whole(Lookahead):
        """Has hooks and moves weights, but not in `step`."""

    optimizer = Whole(sgd(loop))
    with loop.record(optimizer):
        for _ in range(3):
            loop.gradients()
            optimizer.optimizer.step()


@refused(r"after the last recorded step .* schedule-free's eval\(\)", of=schedule_free)
def schedule_free_in_evaluation_mode_at_the_end(loop: Loop, optimizer: ScheduleFreeSGD) -> None:
    loop.step(optimizer, 5)
    optimizer.eval()


@refused(r"changed between step \d+ and step \d+", of=schedule_free)
def schedule_free_evaluated_in_the_middle(loop: Loop, optimizer: ScheduleFreeSGD) -> None:
    for _ in range(40):
        loop.step(optimizer)
        optimizer.eval()
        optimizer.train()  # comes back but for rounding


@refused("changed before the first recorded step")
def load_state_dict_first(loop: Loop, optimizer: SGD) -> None:
    loop.model.load_state_dict({name: p + 1 for name, p in loop.model.state_dict().items()})
    loop.step(optimizer, 3)


@refused("changed between step 3 and step 4, .* load_state_dict")
def load_state_dict_in_the_middle(loop: Loop, optimizer: SGD) -> None:
    best = {name: p.clone() for name, p in loop.model.state_dict().items()}
    loop.step(optimizer, 3)
    loop.model.load_state_dict(best)
    loop.step(optimizer)


@refused("changed after the last recorded step")
def load_state_dict_at_the_end(loop: Loop, optimizer: SGD) -> None:
    best = {name: p.clone() for name, p in loop.model.state_dict().items()}
    loop.step(optimizer, 3)
    loop.model.load_state_dict(best)


@refused(r"changed after the last recorded step .* apply and evaluate outside of it", of=None)
def the_update_applied_inside_of_the_block(loop: Loop) -> None:
    optimizer = sgd(loop)
    with loop.record(optimizer) as steps:
        loop.step(optimizer, 4)
        steps.regulated(ecgr.ECGR()).apply_(loop.model)


@refused("`2.weight` was changed after the last recorded step")
def a_parameter_of_another_shape(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 2)
    loop.model.get_parameter("2.weight").data = torch.zeros(1, 6)


@refused("`0.weight` was changed between step 2 and step 3, .* another dtype")
def a_model_made_float64(loop: Loop, optimizer: SGD) -> None:
    """The values stay; what comes after would be rounded to float32."""
    loop.step(optimizer, 2)
    loop.model.double()
    loop.step(optimizer)


@refused("`0.weight` was changed between step 1 and step 2")
def one_number_moved_beside_nan(loop: Loop, optimizer: SGD) -> None:
    loop.model.get_parameter("0.weight").grad = torch.full((6, 4), torch.nan)
    optimizer.step()
    loop.model.get_parameter("0.weight").data[2, 2] = 1.0
    optimizer.step()


@refused(r"SGD also owns a parameter of shape \(6, 4\) that is not this model's")
def the_optimisers_parameters_exchanged(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer)
    optimizer.param_groups[0]["params"] = [nn.Parameter(p.detach().clone()) for p in loop.model.parameters()]
    loop.step(optimizer)


@refused("`2.weight` was replaced by another object")
def a_parameter_replaced(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 2)
    last = loop.model.get_submodule("2")
    last.weight = nn.Parameter(last.weight.detach().clone())  # type: ignore[operator]
    loop.step(optimizer, 2)


@refused(r"replaced by another object .*load_state_dict\(assign=True\)")
def parameters_assigned_by_load_state_dict(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 2)
    loop.model.load_state_dict({n: p.clone() for n, p in loop.model.state_dict().items()}, assign=True)


@refused("`2.weight` was taken out of the model")
def a_layer_taken_out(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 2)
    del loop.model[2]  # type: ignore[operator]


@refused("`2.weight` was taken out of the model")
def a_parametrization_registered(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 2)
    nn.utils.parametrizations.weight_norm(loop.model.get_submodule("2"))


@refused("`0.weight` was unfrozen while recording", of=None)
def layers_unfrozen_in_the_middle(loop: Loop) -> None:
    loop.model.get_submodule("0").requires_grad_(False)
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.get_submodule("0").requires_grad_(True)
        loop.step(optimizer, 2)


@refused("`0.weight` was unfrozen while recording", of=None)
def layers_unfrozen_for_a_while(loop: Loop) -> None:
    loop.model.get_submodule("0").requires_grad_(False)
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.model.get_submodule("0").requires_grad_(True)
        loop.step(optimizer, 2)
        loop.model.get_submodule("0").requires_grad_(False)


@refused("`0.weight` was unfrozen while recording", of=None)
def layers_unfrozen_at_the_end(loop: Loop) -> None:
    loop.model.get_submodule("0").requires_grad_(False)
    optimizer = sgd(loop)
    with loop.record(optimizer):
        loop.step(optimizer, 2)
        loop.model.get_submodule("0").requires_grad_(True)


@refused("`3.weight` was added to the model while recording")
def a_layer_added_in_the_middle(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 2)
    layer = nn.Linear(2, 2)
    loop.model.add_module("3", layer)
    optimizer.add_param_group({"params": layer.parameters()})
    loop.step(optimizer, 2)


@refused("`3.weight` was added to the model while recording")
def a_layer_added_and_never_trained(loop: Loop, optimizer: SGD) -> None:
    loop.step(optimizer, 2)
    loop.model.add_module("3", nn.Linear(2, 2))


@refused("`0.weight` is frozen but has a gradient left", of=None)
def a_frozen_layer_with_a_gradient_left(loop: Loop) -> None:
    loop.gradients()
    loop.model.get_submodule("0").requires_grad_(False)
    optimizer = sgd(loop)
    with loop.record(optimizer):
        optimizer.step()


@refused("SGD owns no trainable parameter of this model", on_entry=True, of=None)
def an_optimiser_of_another_model(loop: Loop) -> None:
    with loop.record(SGD(mlp().parameters(), lr=0.1)):
        pass


@refused("before this model's parameters were replaced", on_entry=True, of=None)
def an_optimiser_made_before_the_parameters_were_replaced(loop: Loop) -> None:
    optimizer = sgd(loop)
    loop.model.load_state_dict({n: p.clone() for n, p in loop.model.state_dict().items()}, assign=True)
    with loop.record(optimizer):
        pass


@refused(r"SGD also owns a parameter of shape \(2, 2\) that is not this model's", on_entry=True, of=None)
def an_optimiser_of_two_models(loop: Loop) -> None:
    head = nn.Linear(2, 2)
    with loop.record(SGD([*loop.model.parameters(), *head.parameters()], lr=0.1)):
        pass


@refused("SGD owns no trainable parameter of this model", on_entry=True, of=None)
def one_of_two_optimisers_is_of_another_model(loop: Loop) -> None:
    with loop.record([sgd(loop), SGD(mlp().parameters(), lr=0.1)]):
        pass
