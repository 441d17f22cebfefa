"""Experiments: strict, all problems at once, TOML in and out, one key for repetitions."""

import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from ecgr.algorithms.parts import PARTS
from ecgr.config.experiment import MAX_BYTES, Experiment, load, presets, read
from ecgr.config.registry import LEFT_OUT, SECTIONS, override, parameters_of
from ecgr.core.regulators import ECGR, Plain
from ecgr.errors import ConfigError
from support.quick import examples

Raw = dict[str, dict[str, Any]]
COMPOSABLE = {"fedavg", "fedprox", "fednova", "scaffold", "fedcm"}


def problems(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Every problem of a config that cannot be used."""
    with pytest.raises(ConfigError) as caught:
        Experiment.from_dict(raw)
    return caught.value.problems


# Random valid configs, drawn from the declarations themselves


def values_for(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Values that a declared parameter allows, by its type and bounds."""
    annotated: Any = Annotated[field.annotation, None, *field.metadata]
    try:
        schema = TypeAdapter(annotated).json_schema()
    except PydanticUserError:
        return st.just(field.default)
    one = next(option for option in schema.get("anyOf", [schema]) if option.get("type") != "null")
    low, high = (one.get(name, one.get(f"exclusive{name.capitalize()}")) for name in ("minimum", "maximum"))
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "integer": st.integers(low or 0, min(500, high or 500)),
        "string": st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), min_size=1),
    }
    if "enum" in one:
        return st.sampled_from(one["enum"])
    if "pattern" in one:
        return st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z").filter(lambda name: len(name) > 8)
    if one.get("type") == "number":
        open_ends: dict[str, Any] = {"exclude_min": "exclusiveMinimum" in one, "exclude_max": "exclusiveMaximum" in one}
        return st.floats(float(low or 0), 1e6 if high is None else float(high), allow_subnormal=False, **open_ends)
    return kinds.get(str(one.get("type")), st.just(field.default))


PERSONAL = {"local", "finetune"}


def going_together(raw: Raw) -> Raw:
    """Without what cannot be had together; that has tests of its own."""
    raw["partition"]["clients"] = min(raw["partition"].get("clients", 10), 1000)
    if raw["algorithm"]["name"] not in COMPOSABLE or raw["algorithm"].get("server_lr", 1) != 1:
        raw["server"] = {"name": "average"}
    for name in [name for name in PARTS if raw[name]["name"] == "none"]:
        del raw[name]
    if raw["algorithm"]["name"] == "head_only":
        raw |= {"regulator": {"name": "none"}, "head": {"name": "lda"}}
    kept = "head" if raw["algorithm"]["name"] == "head_only" else next((name for name in PARTS if name in raw), None)
    for name in PARTS.keys() - {kept}:  # few of them go together
        raw.pop(name, None)
    raw["optimizer"]["name"] = "sgd"  # what else does not go together has tests of its own
    raw["optimizer"].pop("weight_decay", None)
    if PERSONAL & raw.keys():  # these train one model for all
        for key in ("pooled", "alone"):
            raw["partition"].pop(key, None)
    if raw["algorithm"]["name"] != "fedavg":
        raw.pop("dp", None)
    if "dp" in raw:
        raw |= {"server": {"name": "average"}, "dp": {**raw["dp"], "clip": 1.0, "noise": 0.0}}
        raw["data"].pop("score", None)  # a client's own score is told without noise
        raw["partition"].pop("test_share", None)
    return raw


@st.composite
def configs(draw: st.DrawFn) -> Raw:
    """A valid nested dict: any entry of every table, any subset of its parameters."""
    raw: Raw = {}
    for name, section in SECTIONS.items():
        values: dict[str, Any] = {}
        parts: list[Callable[..., Any]] = []
        if section.table is not None:
            values["name"] = draw(st.sampled_from(sorted(section.table)))
            parts.append(section.table[values["name"]])
        if section.settings is not None:
            parts.append(section.settings)
        for part in parts:
            for key, field in parameters_of(part).items():
                if field.is_required() or draw(st.booleans()):
                    values[key] = draw(values_for(field))
        raw[name] = values
    return going_together(raw)


@examples(80)
@given(configs())
def test_a_config_survives_the_way_through_a_dict_and_through_toml(raw: Raw) -> None:
    experiment = Experiment.from_dict(raw)
    assert Experiment.from_dict(experiment.to_dict()) == experiment
    read_back = Experiment.from_dict(tomllib.loads(experiment.to_toml()))
    assert read_back == experiment
    assert read_back.key() == experiment.key() == experiment.replace({"run.seed": 7, "run.name": "x.1"}).key()
    for section, values in raw.items():
        for key, value in values.items():
            expected = list(value) if isinstance(value, tuple) else value  # as JSON has it
            if key == "score" and (PERSONAL & raw.keys() or experiment.partition.test_share):
                expected = "own"
            known = parameters_of(SECTIONS[section].settings or load)
            if key in LEFT_OUT and key in known and expected == known[key].default:
                expected = None
            if key == "split_seed" and values.get("redraw"):
                expected = experiment.run.seed
            assert experiment.to_dict()[section].get(key) == expected


@pytest.mark.parametrize(
    "text", ["/data/\U0001f600.json", "a\x7fb", 'quo"te', "back\\slash", "tab\tnew\nline", "é ü ß"]
)
def test_any_text_survives_toml(text: str) -> None:
    """TOML allows no escaped surrogates, which JSON uses beyond the first 65,536 characters."""
    experiment = Experiment.from_dict({"partition": {"file": text}})
    assert tomllib.loads(experiment.to_toml())["partition"]["file"] == text


@examples(40)
@given(configs(), st.data())
def test_every_other_change_changes_the_key(raw: Raw, data: st.DataObject) -> None:
    raw["server"] = {"name": "average"}
    experiment = Experiment.from_dict(raw)
    section = data.draw(st.sampled_from([name for name in raw if name not in {"model", "server"}]))
    entry = SECTIONS[section]
    fields: dict[str, FieldInfo] = {}
    if entry.table is not None:
        fields |= parameters_of(entry.table[raw[section]["name"]])
    if entry.settings is not None:
        fields |= parameters_of(entry.settings)
    free = sorted(set(fields) - ({"seed", "name"} if section == "run" else {"pooled", "alone"}))
    if not free:
        return
    key = data.draw(st.sampled_from(free))
    value = data.draw(values_for(fields[key]))
    if section == "partition" and key == "clients" and value is not None:
        value = min(value, 1000)
    changed = experiment.replace({f"{section}.{key}": value})
    same = changed.to_dict()[section].get(key) == experiment.to_dict()[section].get(key)
    same |= key == "rounds" and raw["schedule"]["name"] == "constant"  # a longer run contains the shorter
    assert (changed.key() == experiment.key()) == same


def test_a_whole_number_and_the_same_decimal_number_are_the_same_config() -> None:
    """`--set model.width=1` and the default 1.0 mean one thing, so they must group together."""
    for section, name, key in [("model", "cnn", "width"), ("regulator", "ecgr", "beta"), ("optimizer", "sgd", "lr")]:
        whole = Experiment.from_dict({section: {"name": name, key: 1}})
        decimal = Experiment.from_dict({section: {"name": name, key: 1.0}})
        assert whole == decimal
        assert whole.key() == decimal.key(), section


def test_an_empty_config_is_the_default_experiment() -> None:
    experiment = Experiment.from_dict({})
    assert experiment.regulator == Plain()
    assert Experiment.from_dict({"regulator": {"beta": 0.5}}).regulator == ECGR(beta=0.5)
    assert experiment.run.name is None
    named = load("quickstart")
    assert named.run.name == "quickstart"
    assert named.federation.rounds == 7


# Bad input: the key is named, what is allowed is said, and everything is said at once


NAMES = ["../../x", "/etc/x", "C:\\x", "a\0b", "", "..", "-rf", "a" * 65, "a\n", "\u202eb", "run\u0430", "CON"]


@pytest.mark.parametrize(
    ("key", "bad", "allowed"),
    [
        ("regulator.beta", 1.5, "at most 1"),
        ("regulator.beta", float("nan"), "a number"),
        ("regulator.beta", "half", "a number"),
        ("regulator.keep", 0.0, "above 0"),
        ("optimizer.lr", float("inf"), "above 0"),
        ("optimizer.lr", True, "a number"),
        ("optimizer.momentum", 1.0, "below 1"),
        ("federation.rounds", 0, "at least 1"),
        ("federation.rounds", 2.5, "a whole number"),
        ("federation.rounds", True, "a whole number"),
        ("federation.rounds", 10**9, "at most"),
        ("federation.rounds", [1], "a whole number"),
        ("federation.rounds", {"a": 1}, "a whole number"),
        ("federation.rounds", "x\n" * 5000, "a whole number"),
        ("federation.last_batch", "ignore", "keep, merge, drop"),
        ("run.seed", 2**63, "below"),
        ("run.store", "cloud", "dense"),
        ("run.name", 5, "text"),
        *((f"run.{key}", "mean", "was removed") for key in ("buffers", "step_control", "diagnostics")),
        *(("run.name", name, "only letters") for name in NAMES),
    ],
)
def test_a_value_that_does_not_fit_is_named_in_one_line_with_what_is_allowed(key: str, bad: Any, allowed: str) -> None:
    """THREATS: a run's name has letters, digits and . _ - only, and is none that some systems keep for devices."""
    section, _, name = key.partition(".")
    [line] = problems({section: {name: bad}})
    assert line.startswith(f"{key}: ")
    assert allowed in line
    assert "\n" not in line
    assert len(line) < 300


def test_all_problems_are_found_at_once() -> None:
    raw = {
        "regulator": {"name": "ecgr", "beta": 1.5, "bta": 0.1},
        "algorithm": {"name": "fedprox", "mue": 1},
        "data": {"name": "minst"},
        "federation": {"rounds": "ten", "participation": 2.0},
        "optimiser": {"lr": 1},
        "run": 5,
    }
    keys = ["algorithm.mue", "data.name", "federation.participation", "federation.rounds", "optimiser"]
    keys += ["regulator.beta", "regulator.bta", "run"]
    assert sorted(line.split(":")[0] for line in problems(raw)) == keys


@pytest.mark.parametrize(
    ("raw", "key", "suggestion"),
    [
        ({"algorithm": {"name": "fedprox", "mue": 1}}, "algorithm.mue", "did you mean 'mu'"),
        ({"algorithm": {"name": "fedavg", "mu": 0.1}}, "algorithm.mu", "is a key of fedprox"),
        ({"algorithm": {"name": "fedavgm", "momentum": 0.7}}, "algorithm.momentum", "server_momentum"),
        ({"data": {"name": "minst"}}, "data.name", "did you mean 'mnist'"),
        ({"federation": {"round": 3}}, "federation.round", "did you mean 'rounds'"),
        ({"optimiser": {}}, "optimiser", "did you mean 'optimizer'"),
        ({"model": {"name": "cnn", "widht": 2.0}}, "model.widht", "did you mean 'width'"),
        ({"model": {"name": "cnn", "classes": 5}}, "model.classes", "width"),  # the data decide it
    ],
)
def test_an_unknown_key_or_name_comes_with_the_nearest_and_with_all_there_are(
    raw: Raw, key: str, suggestion: str
) -> None:
    [line] = problems(raw)
    assert line.startswith(f"{key}: ")
    assert suggestion in line
    assert "xpected one of: " in line


@pytest.mark.parametrize("bad", [["digits"], {"a": 1}, 5, True, 1.5, None])
@pytest.mark.parametrize("section", [name for name, section in SECTIONS.items() if section.table is not None])
def test_a_name_that_is_not_text_is_a_config_error(section: str, bad: Any) -> None:
    """TOML can give a list or a table where a name belongs; looking it up must not end in a TypeError."""
    lines = problems({section: {"name": bad}})
    assert any(line.startswith(f"{section}.name: ") for line in lines)
    with pytest.raises(ConfigError):
        load({}, {f"{section}.name": bad})


@pytest.mark.parametrize("bad", [5, "text", [1], None, True])
@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_a_section_that_is_not_a_table_is_a_config_error(section: str, bad: Any) -> None:
    lines = problems({section: bad})
    assert any(line.startswith(f"{section}: ") for line in lines)
    with pytest.raises(ConfigError):
        load({section: bad}, {f"{section}.name": "x"})


# Overrides


def test_choosing_another_name_drops_the_parameters_that_only_the_old_one_took() -> None:
    raw = {"algorithm": {"name": "fedprox", "mu": 0.5}, "partition": {"name": "dirichlet", "alpha": 0.1, "clients": 4}}
    changed = override(raw, {"algorithm.name": "fedavg", "partition.name": "iid"})
    assert changed == {"algorithm": {"name": "fedavg"}, "partition": {"name": "iid", "clients": 4}}
    assert (
        raw["algorithm"] == {"name": "fedprox", "mu": 0.5} == override(raw, {"algorithm.name": "fedprox"})["algorithm"]
    )
    both = override({"algorithm": {"name": "fedavgm", "server_lr": 2.0}}, {"algorithm.name": "fedadam"})
    assert both == {"algorithm": {"name": "fedadam", "server_lr": 2.0}}
    with pytest.raises(ConfigError, match=r"beta: expected section\.key"):
        load({}, {"beta": 0.5})


def test_a_parameter_set_by_hand_is_never_dropped_whatever_the_order() -> None:
    for changes in (
        {"algorithm.name": "fedprox", "algorithm.mu": 0.5},
        {"algorithm.mu": 0.5, "algorithm.name": "fedprox"},
    ):
        assert override({}, changes) == {"algorithm": {"name": "fedprox", "mu": 0.5}}
    wrong = override({"regulator": {"name": "ecgr"}}, {"regulator.beta": 0.5, "regulator.name": "none"})
    assert [line.split(":")[0] for line in problems(wrong)] == ["regulator.beta"]


def test_replacing_gives_a_new_experiment_and_checks_it() -> None:
    experiment = Experiment.from_dict({})
    assert experiment.replace({"regulator.name": "ecgr", "regulator.beta": 0.5}).regulator == ECGR(beta=0.5)
    assert experiment.regulator == Plain()
    with pytest.raises(ConfigError, match=r"regulator\.beta"):
        experiment.replace({"regulator.name": "ecgr", "regulator.beta": 2.0})


# Files


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("marked.toml", '\ufeff[regulator]\nname = "none"\n', "marked"),  # some editors begin a file with a mark
        ("own.toml", '[run]\nname = "given"\n', "given"),
        ("my experiment (2).toml", "", "my-experiment-2-"),
    ],
)
def test_a_file_gives_its_name_to_a_run_that_has_none(tmp_path: Path, file: str, content: str, name: str) -> None:
    (tmp_path / file).write_text(content, encoding="utf-8")
    assert load(tmp_path / file).run.name == name


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[data\nname = 1", "not valid TOML"),
        (b"a = \xff\xfe", "not valid TOML"),
        (b"data = 1\ndata = 2", "not valid TOML"),
        (b'[run]\nname = "a"\n' + b"#" * MAX_BYTES, "larger than"),
        (b"x = " + b"[" * 100_000 + b"]" * 100_000, "nested too deeply|not valid TOML"),
        (b"!!python/object/apply:os.system ['true']", "not valid TOML"),
        (b"[run" + b".a" * 30 + b"]\nb = 1\n", r"run\.a"),
        (b"[run" + b".a" * 40 + b"]\nb = 1\n", "nested too deeply"),
    ],
)
def test_a_file_that_is_not_a_config_is_refused_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as caught:
        load(path)
    assert all("\n" not in line and len(line) < 500 for line in caught.value.problems)


def test_a_deeply_dotted_key_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    """tomllib takes time in the square of a dotted key's depth: 20 kB take 1.2 s, the allowed 1 MB most of an hour."""
    path = tmp_path / "dots.toml"
    path.write_text("x" + ".x" * 10_000 + " = 1\n")
    began = time.process_time()
    with pytest.raises(ConfigError):
        load(path)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("source", ["quickstrat", "no/such/file.toml", "", "\x1b[31m", "."])
def test_a_preset_or_file_that_does_not_exist_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match="did you mean 'quickstart'" if "q" in source else "unknown preset or file"):
        load(source)


SWEEPS = {name for name in presets() if {"grid", "part"} & set(read(name))}


@pytest.mark.parametrize("name", sorted(set(presets()) - SWEEPS))
def test_every_preset_is_a_valid_experiment_of_its_own_name(name: str) -> None:
    assert load(name).run.name == name.replace("/", "-")


@pytest.mark.parametrize("name", sorted(SWEEPS))
def test_a_preset_that_is_a_sweep_is_not_one_experiment(name: str) -> None:
    """That each of its experiments loads is tested with the presets of real data."""
    with pytest.raises(ConfigError, match="this is a sweep, not one experiment; give it to `ecgr sweep`"):
        load(name)


# Algorithm and server rule


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"algorithm.name": "fedavgm", "server.name": "adam"}, "server.name: fedavgm already is fedavg/momentum"),
        ({"algorithm.name": "feddyn", "server.lr": 2.0}, "server.name: feddyn takes the server's step itself"),
        ({"algorithm.server_lr": 2.0, "server.lr": 2.0}, "server.name: algorithm.server_lr and server.lr both"),
        ({"algorithm.name": "fedcm", "optimizer.name": "adamw"}, "optimizer.name: fedcm takes"),
        (
            {"algorithm.name": "scaffold", "algorithm.units": "gradient", "optimizer.name": "adamw"},
            "optimizer.name: sc",
        ),
        ({"partition.clients": 5000}, "partition.clients: 5000 clients cannot share 1438 training samples"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name_with_a_reason(changes: dict[str, Any], line: str) -> None:
    [found] = problems(override({}, changes))
    assert found.startswith(line)


def test_regulator_and_server_rule_are_part_of_the_key() -> None:
    raws: list[Raw] = [{}, *({"regulator": {"name": name}} for name in ("ecgr", "bherd")), {"server": {"lr": 2.0}}]
    assert len({Experiment.from_dict(raw).key() for raw in [*raws, {"server": {"name": "lookahead"}}]}) == 5


def test_users_presets_ship_and_the_studys_do_not() -> None:
    """What the wheel takes from ``experiments/``, by the rule that builds it."""
    root = Path(__file__).parents[2]
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    shipped = {Path(place).relative_to("experiments").parts[0] for place in build["force-include"]}
    assert shipped == {"demo.toml", "quickstart.toml", "paper", "hospitals", "text"}
    assert all(place == f"ecgr/{origin}" for origin, place in build["force-include"].items())


def test_a_default_of_the_old_choice_never_becomes_a_setting_of_the_new_one() -> None:
    """fedavg.server_lr is 1 and server.lr of averaging too: Adam's are a hundredth of that."""
    whole = load("quickstart")
    assert whole.replace({"algorithm.name": "fedadam"}).to_dict()["algorithm"]["server_lr"] == 0.01
    assert whole.replace({"server.name": "adam"}).to_dict()["server"]["lr"] == 0.01
    assert whole.replace({"server.lr": 2.0}).replace({"server.name": "lookahead"}).to_dict()["server"]["lr"] == 2.0
