"""What does not go together, though each part is well formed: found before anything is read or written."""

from collections.abc import Iterator

from ecgr.algorithms import Entry, ServerRule, clash, compose, serves_params
from ecgr.experiment.optimizers import OptimizerFactory
from ecgr.experiment.sections import RunSettings


def combination_problems(
    entry: Entry, rule: ServerRule, optimizer: OptimizerFactory, run: RunSettings
) -> Iterator[str]:
    """One line for every two settings that cannot be had together."""
    problem = clash(entry, rule)
    if problem is not None:
        yield f"server.name: {problem}"
        return
    algorithm = compose(entry, rule)
    name = type(entry).__name__
    if algorithm.in_gradient_units and not optimizer.follows_gradient:
        yield (
            f"optimizer.name: {name} takes a client's displacement for a sum of gradients, which"
            f" {type(optimizer).__name__}'s is not; use sgd, or an algorithm without such a unit"
        )
    if run.buffers == "as_weights" and algorithm.in_gradient_units:
        yield f"run.buffers: 'as_weights' has no gradient that {name} could correct; use average"
    if serves_params(algorithm):
        return
    told = "hands out another model than the one its clients start from"
    if run.step_control != "none":
        yield f"run.step_control: {run.step_control!r} rescales the model's step, and {name} {told}; set it to none"
    if run.buffers == "as_weights" and not algorithm.in_gradient_units:
        yield f"run.buffers: 'as_weights' would extrapolate BatchNorm's buffers, as {name} {told}; use average"
