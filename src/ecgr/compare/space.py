"""Where a method's hyper-parameters are looked for: the learning rate, the server's step, and one knob of its own.

A knob is what the class of a regulator, an algorithm or a server rule declares as ``tunable``, with its range.
"""

import math
from typing import Any

from ecgr.algorithms import Shorthand, is_whole
from ecgr.analysis.tuning import Axis
from ecgr.config.experiment import Experiment
from ecgr.config.registry import SECTIONS, parameters_of
from ecgr.config.user_code import unwrap

LR = (0.25, 10.0)
"""The range of the learning rate, in multiples of the experiment's."""
STEP = (0.5, 2.0)
"""That of the server's step, in multiples of the method's; a class may declare another."""
STEPS = ("server_lr", "lr")


def space_of(experiment: Experiment) -> dict[str, Axis]:
    """What is tuned of an experiment's method; parts that are given as objects are left as they are.

    >>> from ecgr.config.experiment import load
    >>> space_of(load("quickstart", {"algorithm.name": "fedprox", "regulator.name": "none"}))["algorithm.mu"]
    Axis(default=0.1, low=0.001, high=1.0, most=inf)
    >>> list(space_of(load("quickstart", {"algorithm.name": "fedavgm"})))
    ['optimizer.lr', 'algorithm.server_lr', 'algorithm.server_momentum']
    """
    raw, entry = experiment.raw(), unwrap(experiment.correction)
    own = isinstance(entry, Shorthand) or is_whole(entry) or getattr(entry, "server_lr", 1.0) != 1.0
    step = ("algorithm", "server_lr", entry) if own else ("server", "lr", unwrap(experiment.server))
    keys: list[tuple[str, str, Any]] = [("optimizer", "lr", None), step]
    parts = {"regulator": experiment.regulator, "algorithm": entry, "server": experiment.server, **experiment.parts}
    knobs = [
        (section, key, unwrap(part))
        for section, part in parts.items()
        for key in getattr(unwrap(part), "tunable", {})
        if key not in STEPS or section in experiment.parts
    ]
    space = {}
    for section, key, part in (*(keys if getattr(entry, "trains", True) else ()), *knobs[:1]):
        name, value = raw[section].get("name"), raw[section].get(key)
        if isinstance(name, str) and isinstance(value, (int, float)):
            least, most = LR if section == "optimizer" else STEP
            low, high = getattr(part, "tunable", {}).get(key, (least * value, most * value))
            if value > 0:
                low, high = min(low, value), max(high, value)
            space[f"{section}.{key}"] = Axis(value, low, high, _most(SECTIONS[section].entry(name), key))
    return space


def _most(entry: Any, key: str) -> float:
    """The largest value that a parameter allows; a bit below what it must stay below."""
    bounds = parameters_of(entry)[key].metadata
    reached = [float(each.le) for each in bounds if getattr(each, "le", None) is not None]
    excluded = [0.99 * float(each.lt) for each in bounds if getattr(each, "lt", None) is not None]
    return min([math.inf, *reached, *excluded])
