"""Methods in one line: read, written, read back; errors in one line with the nearest name."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from time import process_time
from typing import Annotated, Any, get_args

import pytest
import torch
from pydantic import Field

from ecgr.algorithms import SERVER_RULES, Defaults, DriftCorrection, FedACG, Scaffold
from ecgr.algorithms.server_rules import Lookahead
from ecgr.compare.plan import plan_comparison
from ecgr.component import component
from ecgr.config.experiment import Experiment, load
from ecgr.config.methods import PARTS, Method, method_name, method_settings, parse_method, split_methods
from ecgr.config.registry import parameters_of, problems_with
from ecgr.config.user_code import unwrap
from ecgr.core.regulators import ECGR, REGULATORS
from ecgr.errors import ConfigError
from ecgr.tasks.losses import BalancedSoftmax, as_loss


@pytest.mark.parametrize(
    "text",
    [
        'scaffold(units="gradient", damping=0.5)/momentum(normalised=true, lr=2)+ecgr(beta=0.2)',
        "scaffold(units='gradient',damping=.5) / momentum(normalised=true,lr=2)+ecgr",
        " scaffold( units = gradient , damping = 5e-1 )/momentum( normalised = true, lr = 2.0 ) + ecgr ",
    ],
)
def test_quotes_and_blanks_are_free(text: str) -> None:
    experiment = load("quickstart").replace(parse_method(text))
    assert experiment.correction == Scaffold(units="gradient", damping=0.5)
    assert experiment.server == SERVER_RULES["momentum"](normalised=True, lr=2.0)
    assert experiment.regulator == ECGR()
    name = "scaffold(damping=0.5, units=gradient)/momentum(normalised=true, lr=2)+ecgr"
    assert parse_method(method_name(experiment.to_dict())) == parse_method(name)


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
        ("fedavg//nur", ["correction(key=value)"]),
        ("", ["correction(key=value)"]),
        ("fedavg(", ["correction(key=value)"]),
        ("fedavg+ecgr/nur", ["correction(key=value)", "expected the end at '/nur'"]),
        ("fedavg(server_lr=2", ["expected , or ) at its end"]),
        ("fedavg[mse", ["expected ] at its end"]),
        ("fedprox(mu=1, mu=2)", ["fedprox.mu is given twice"]),
        ("fedavg+ecgr+bherd", ["ecgr and bherd are regulators; give at most one"]),
        ("fedavg+dp(nose=1)+ecgr", ["dp: unknown key 'nose'", "did you mean 'noise'"]),
        ("fedavg+locl(part=norm)", ["did you mean 'local'"]),
        ("fedavg+local+ecgr+local(part=head)", ["local and local are the same part; give at most one"]),
        ("fedavg+ecgr+finetune(steps=0)", ["finetune.steps", "at least 1"]),
        ("fedavg/nur+ecgr@rigde", ["head 'rigde'", "did you mean 'ridge'"]),
        ("fedavg@lda(shrink=0.1)", ["did you mean 'shrinkage'"]),
        ("fedavg@lda@ridge", ["expected the end at '@ridge'"]),
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
    with pytest.raises(ConfigError, match="method: expected a string"):
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


GIVEN = {
    "Mine(strength=0.25)": Mine(strength=0.25),
    "Pulls": Pulls(),
    "fedacg(momentum=0.7)+ecgr(beta=0.5)": Method(FedACG(momentum=0.7), regulator=ECGR(beta=0.5)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_an_object_makes_an_experiment_of_its_method(name: str) -> None:
    experiment, method = load("quickstart").replace(method_settings(GIVEN[name])), Method.of(GIVEN[name])
    assert unwrap(experiment.correction) == method.algorithm
    assert experiment.regulator == method.regulator
    assert method_name(experiment.to_dict()) == method.name == name


def test_different_methods_of_one_name_are_not_taken_for_one() -> None:
    mean: Any = lambda geometry: None  # noqa: E731
    other: Any = lambda geometry: None  # noqa: E731
    assert Method(regulator=mean).name == Method(regulator=other).name
    assert Method(regulator=mean).is_same(Method(regulator=mean))
    assert not Method(regulator=mean).is_same(Method(regulator=other))
    assert Method.of(Pulls()).is_same(Method.of(Pulls()))
    for methods in ([mean, other], ["fedavg", mean, other]):
        with pytest.raises(ConfigError, match="two different methods are named fedavg"):
            plan_comparison("quickstart", methods=methods)


def test_a_loss_is_part_of_a_method_where_it_is_named() -> None:
    """One that comes with the data (cross entropy here) is not shown, unless it is named."""
    base = load("quickstart")
    changed = base.replace(parse_method("fedavg[balanced_softmax(tau=0.5)]/nur+ecgr"))
    assert changed.loss == BalancedSoftmax(tau=0.5)
    names = {
        "fedavg": base.replace(parse_method("fedavg")),
        "fedavg[cross_entropy]": base.replace(parse_method("fedavg[cross_entropy]")),
        "fedavg[balanced_softmax(tau=0.5)]/nur+ecgr": changed,
        "fedprox[balanced_softmax(tau=0.5)]": changed.replace(parse_method("fedprox")),
        "fedprox[cross_entropy]": changed.replace(parse_method("fedprox[cross_entropy]")),
    }
    assert [method_name(experiment.to_dict()) for experiment in names.values()] == list(names)
    assert Method(loss=as_loss(torch.dist)).name == "fedavg[dist]"


def changed_parameters(entry: Any) -> dict[str, Any]:
    """A value that is not the default for every parameter of an entry."""
    values: dict[str, Any] = {}
    for name, declared in parameters_of(entry).items():
        choices = [0.25, 3, True, False, *get_args(declared.annotation)]
        fit = [each for each in choices if each != declared.default and not problems_with("", entry, {name: each})]
        values[name] = fit[0]
    return values


def written(name: str, values: dict[str, Any]) -> str:
    return name + (f"({','.join(f'{key}={json.dumps(value)}' for key, value in values.items())})" if values else "")


def calls(table: Any, kind: str) -> list[str]:
    """Every entry of a table: as it is, with all parameters changed, with each alone."""
    found = []
    for name, entry in table.items():
        values = changed_parameters(entry)
        choices: dict[str, list[dict[str, Any]]] = {
            "default": [{}],
            "changed": [values],
            "each": [{key: value} for key, value in values.items()],
        }
        found += [written(name, each) for each in choices[kind]]
    return found


@pytest.mark.parametrize("kind", ["default", pytest.param("changed", marks=pytest.mark.nightly), "each"])
def test_every_method_has_one_name_that_reads_back_to_it(kind: str) -> None:
    """The whole product of the tables; with single parameters changed, one table at a time."""
    algorithms, losses, servers, regulators = (calls(table, kind) for table in list(PARTS.values())[:4])
    strings = (
        [
            algorithm + loss + server + regulator
            for algorithm in algorithms
            for loss in ["", *(f"[{each}]" for each in losses)]
            for server in ["", *(f"/{each}" for each in servers)]
            for regulator in ["", *(f"+{each}" for each in regulators)]
        ]
        if kind != "each"
        else [
            *algorithms,
            *(f"fedavg[{each}]" for each in losses),
            *(f"fedavg/{each}" for each in servers),
            *(f"fedavg+{each}" for each in regulators),
            *(f"fedavg@{each}" for each in calls(PARTS["head"], kind)),
            *(f"fedavg+{each}" for each in calls(PARTS["dp"], kind)),
        ]
    )
    methods: dict[str, Method] = {}
    for text in strings:
        try:
            method = Method.of(text)
        except ConfigError:  # two that cannot be combined
            continue
        name = method.name
        assert Method.of(name) == method, text
        assert methods.setdefault(name, method) == method, text
    assert len(methods) == len({repr(method) for method in methods.values()})
    assert len(methods) > (1000 if kind != "each" else 30)


@component
class Worded:
    """A regulator with text and lists for parameters."""

    word: str = "a"
    maybe: float | None = 1.0
    sizes: Annotated[tuple[int, ...], Field(strict=False)] = ()

    def __call__(self, geometry: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    "values",
    [
        *({"word": word} for word in ["true", "1e3", "a, b", 'it\'s "so" ]), \\', ""]),
        *({"maybe": value} for value in [None, 1e22, 1e-7]),
        {"sizes": (1, 2)},
    ],
)
def test_whatever_a_parameter_holds_reads_back(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGULATORS, "worded", Worded)
    method = Method(regulator=Worded(**values))
    assert Method.of(method.name) == method
    assert split_methods(f"fedavg,{method.name},fedprox") == ["fedavg", method.name, "fedprox"]


PUNCTUATION = "()[]/+@=,.-'\"\\! \n\t"
VALID = ["fedavg", "scaffold(damping=0.5, units=gradient)/lookahead(momentum=0.7)+ecgr(beta=0.2)", "fedavg[fedrs]/nur"]


def odd_strings() -> Iterator[str]:
    """Random strings, valid ones with a few characters changed, and long repetitions."""
    rng = Random(0)
    alphabet = PUNCTUATION + "abcfedvgr019_é\u2028\x00"
    for length in range(300):
        yield "".join(rng.choice(alphabet) for _ in range(length % 40))
    for number in range(300):
        text = list(VALID[number % len(VALID)])
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 2)] = rng.choice(alphabet)
        yield "".join(text)
    for mark in [*PUNCTUATION, "a", "1", "(a=", "[a", "/a", "+ecgr", "@a", "a,", "a=1,", "a=[", '\\"']:
        for before, after in (("", ""), ("fedavg", "!"), ("fedavg(a=", ""), ("fedavg(a", ")"), ("fedavg[", "]!")):
            for count in (120, 100_000):
                yield before + mark * count + after


def test_odd_strings_parse_or_are_refused_in_one_line_and_in_no_time() -> None:
    strings, slowest, refused = list(odd_strings()), 0.0, 0
    assert len(strings) > 800
    for text in strings:
        began = process_time()
        for piece in [text, *split_methods(text)[:3]]:
            try:
                parse_method(piece)
            except ConfigError as error:
                refused += 1
                assert all(len(line) < 1000 and len(line.splitlines()) == 1 for line in error.problems), piece[:80]
        slowest = max(slowest, process_time() - began)
    assert refused > 700
    assert slowest < 1
