"""Methods in one line: read, written, read back; errors in one line with the nearest name."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.algorithms import ALGORITHMS, SERVER_RULES, Defaults, DriftCorrection, FedACG, Scaffold
from ecgr.algorithms.rules import Lookahead
from ecgr.config.experiment import Experiment, load
from ecgr.config.methods import Method, method_name, method_settings, parse_method, split_methods
from ecgr.core.regulators import ECGR, REGULATORS
from ecgr.errors import ConfigError
from ecgr.tasks.losses import BalancedSoftmax
from support.quick import examples

COMPOSABLE = ["fedavg", "fedprox", "fednova", "scaffold", "fedcm"]


def test_the_example_of_the_documentation() -> None:
    assert parse_method("scaffold(damping=0.5)/lookahead(momentum=0.7)+ecgr(beta=0.2)") == {
        "algorithm.name": "scaffold",
        "algorithm.damping": 0.5,
        "server.name": "lookahead",
        "server.momentum": 0.7,
        "regulator.name": "ecgr",
        "regulator.beta": 0.2,
    }


@pytest.mark.parametrize(
    "text",
    [
        'scaffold(units="gradient", damping=0.5)/lookahead',
        "scaffold(units='gradient',damping=.5) / lookahead",
        " scaffold( units = gradient , damping = 5e-1 )/lookahead ",
    ],
)
def test_quotes_and_blanks_are_free(text: str) -> None:
    experiment = load("quickstart").replace(parse_method(text))
    assert experiment.correction == Scaffold(units="gradient", damping=0.5)
    assert experiment.server == Lookahead()
    assert method_name(experiment.to_dict()) == "scaffold(damping=0.5, units=gradient)/lookahead"


def test_truth_and_numbers_have_their_types() -> None:
    values = parse_method("fedavg/momentum(normalised=true, momentum=0.5, lr=2)")
    assert values["server.normalised"] is True
    assert values["server.momentum"] == 0.5
    assert values["server.lr"] == 2


@pytest.mark.slow
@examples(60)
@given(st.data())
def test_every_composition_survives_the_way_through_a_string(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ALGORITHMS)))
    rule = data.draw(st.sampled_from(sorted(SERVER_RULES))) if name in COMPOSABLE else "average"
    regulator = data.draw(st.sampled_from(sorted(REGULATORS)))
    raw: dict[str, dict[str, Any]] = {
        "algorithm": {"name": name},
        "server": {"name": rule},
        "regulator": {"name": regulator},
    }
    share = st.floats(0.01, 0.99)
    if name == "scaffold":
        raw["algorithm"] |= {"damping": data.draw(share), "units": data.draw(st.sampled_from(["steps", "gradient"]))}
    if rule in {"momentum", "lookahead"}:
        raw["server"] |= {"momentum": data.draw(share)}
    if regulator == "ecgr":
        raw["regulator"] |= {"beta": data.draw(share)}
    experiment = Experiment.from_dict(raw)
    text = method_name(experiment.to_dict())
    assert Experiment.from_dict({}).replace(parse_method(text)) == experiment
    assert experiment.replace(parse_method(text)) == experiment
    assert split_methods(f"fedavg,{text},fedprox") == ["fedavg", text, "fedprox"]
    assert Method.of(text).name == text


def test_choosing_another_part_drops_the_parameters_of_the_old_and_keeps_those_of_the_same() -> None:
    base = Experiment.from_dict({"server": {"name": "momentum", "momentum": 0.5}, "regulator": {"beta": 0.7}})
    plain = base.replace(parse_method("fedprox"))
    assert method_name(plain.to_dict()) == "fedprox"
    assert method_name(base.replace(parse_method("fedavg/momentum+ecgr")).to_dict()) == (
        "fedavg/momentum(momentum=0.5)+ecgr(beta=0.7)"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fedavgg", ["fedavgg", "did you mean 'fedavg'", "scaffold"]),
        ("fedavg/lokahead", ["did you mean 'lookahead'"]),
        ("fedavg+ecrg", ["did you mean 'ecgr'"]),
        ("scaffold(dampin=0.5)", ["did you mean 'damping'", "units"]),
        ("scaffold(damping=3)", ["damping", "at most 1"]),
        ("scaffold(units=metres)", ["units", "steps, gradient"]),
        ("scaffold(0.5)", ["key=value"]),
        ("fedavgm/adam", ["fedavgm already is fedavg/momentum"]),
        ("feddyn/lookahead", ["takes the server's step itself"]),
        ("fedavg//ema", ["correction(key=value)"]),
        ("", ["correction(key=value)"]),
        ("fedavg(", ["correction(key=value)"]),
        ("fedavg+ecgr/ema", ["correction(key=value)"]),
    ],
)
def test_what_cannot_be_read_is_answered_in_one_line(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_method(text)
    [line] = caught.value.problems
    assert line.startswith(f"method {text!r}: ")
    assert "\n" not in line
    assert all(word in line for word in words), line


def test_a_method_of_objects() -> None:
    assert Method.of(FedACG(momentum=0.7)).name == "fedacg(momentum=0.7)"
    assert Method.of(FedACG).name == "fedacg"
    assert Method.of(ECGR(beta=0.5)).name == "fedavg+ecgr(beta=0.5)"
    assert Method.of(Lookahead()).name == "fedavg/lookahead"
    whole = Method(Scaffold(damping=0.5), Lookahead(momentum=0.7), ECGR())
    assert whole.name == "scaffold(damping=0.5)/lookahead(momentum=0.7)+ecgr"
    assert Method.of(whole.name) == whole
    with pytest.raises(ConfigError, match="already is"):
        Method(DriftCorrection(), Lookahead())


@pytest.mark.parametrize("given", [3, None, ["fedavg"]])
def test_what_is_no_method_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="no method"):
        Method.of(given)


@dataclass(frozen=True)
class Mine(Defaults):
    """An algorithm of one's own."""

    strength: float = 0.5


@dataclass(frozen=True)
class Pulls:
    """An algorithm that says one thing and leaves the rest as it is."""

    def gradient_term(self, params: Any, anchor: Any, server: Any, client: Any) -> Any:
        return params - anchor


def test_an_algorithm_that_says_one_thing_is_one() -> None:
    assert Method.of(Pulls()).name == "Pulls"


def test_an_own_class_goes_by_its_name() -> None:
    method = Method(algorithm=Mine(strength=0.25))
    assert method.name == "Mine(strength=0.25)"
    experiment = load("quickstart").replace(method_settings(method))
    assert experiment.correction == Mine(strength=0.25)
    assert method_name(experiment.to_dict()) == method.name


@pytest.mark.parametrize(
    "given", ["fedacg(momentum=0.7)+ecgr(beta=0.5)", Method(FedACG(momentum=0.7), regulator=ECGR(beta=0.5))]
)
def test_objects_and_strings_make_the_same_experiment(given: Any) -> None:
    experiment = load("quickstart").replace(method_settings(given))
    assert experiment.correction == FedACG(momentum=0.7)
    assert experiment.regulator == ECGR(beta=0.5)
    assert method_name(experiment.to_dict()) == "fedacg(momentum=0.7)+ecgr(beta=0.5)"


def test_a_loss_is_part_of_a_method_where_it_is_named() -> None:
    base = load("quickstart")
    changed = base.replace(parse_method("fedavg[balanced_softmax(tau=0.5)]/ema+ecgr"))
    assert changed.loss == BalancedSoftmax(tau=0.5)
    assert method_name(changed.to_dict()) == "fedavg[balanced_softmax(tau=0.5)]/ema+ecgr"
    assert method_name(changed.replace(parse_method("fedprox")).to_dict()) == "fedprox[balanced_softmax(tau=0.5)]"
    assert method_name(changed.replace(parse_method("fedprox[cross_entropy]")).to_dict()) == "fedprox"
