"""Loops that cannot be recorded rightly, and what is said of each."""

import torch
from torch import nn
from torch.optim import SGD, Adam

import ecgr
from support.loops import Loop, Run, clip, clip_data, halves, mlp, sgd
from support.optimizers import BareLookahead, Lookahead, ScheduleFreeSGD


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
