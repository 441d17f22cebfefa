"""Loops that look as if they could be recorded wrongly, and are recorded exactly."""

import torch
from torch import nn
from torch.optim import Adam

from support.loops import Loop, Run, clip, clip_data, halves, mlp, sgd
from support.optimizers import SAM, AcceleratedOptimizer, Lookahead, ScheduleFreeSGD


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
