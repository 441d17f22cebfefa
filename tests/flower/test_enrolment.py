"""Sites that say too much, too big or nonsense when they join: left out by name, within bounds; the others start."""

import json
import random
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower import Guard, MemoryGrid, client_app, server_app
from ecgr.flower.fleet import Enrolment, Fleet, Listed, left_out, read_list
from ecgr.flower.wire import Refusal
from ecgr.runs.record import RunRecord
from support.federations import Ticks
from support.hospitals import HOSPITALS, hospital_experiment, hospital_nodes, write_hospitals

HONEST = Enrolment(0, 40, 10, '{"features": 3}', "bce", ("auc",), "abc")


def lying(app: ClientApp, client: int, lies: Mapping[str, Any]) -> Callable[[Message, Context], Message]:
    """Every site runs ``app``, but that of ``client`` says ``lies`` when it joins."""

    def answer(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.message_type == "query" and context.node_config["partition-id"] == client:
            reply.content.config_records["site"].update(lies)
        return reply

    return answer


def federate(
    folder: Path, client: int, lies: Mapping[str, Any], name: str = "run", only: int = 4, **server: Any
) -> RunRecord:
    """Four hospitals, one of which lies when it joins, to the end of the run."""
    if not (folder / "sites").exists():
        write_hospitals(folder)
    chosen = hospital_experiment(rounds=2)
    site = lying(client_app(chosen, local_data=True), client, lies)
    guard = Guard(deadline=60, norm_factor=1e6)
    MemoryGrid(site, hospital_nodes(folder)[:only]).serve(  # type: ignore[arg-type]
        server_app(chosen, folder / name, guard=guard, clock=Ticks(), local_data=True, **server)
    )
    return RunRecord.open(folder / name)


def who_took_part(record: RunRecord) -> list[list[int]]:
    return [[client["client"] for client in row["clients"]] for row in record.rounds]


BAD_WORDS: dict[str, tuple[dict[str, Any], str]] = {
    "a trillion samples": ({"examples": 2**40}, "examples"),
    "a trillion tests": ({"tests": 2**40}, "tests"),
    "nested": ({"shape": "[" * 990}, "shape"),
    "long names": ({"metrics": ["x" * 10**7]}, "metrics"),
    "a long shape": ({"shape": "x" * 10**7}, "shape"),
    "another version": ({"ecgr": "0.0.1", "version": "0.0.1"}, "version"),
    "another task": ({"shape": '{"features": 2147483647}'}, "shape"),
    "another model": ({"parameters": "abc"}, "parameters"),
}


@pytest.mark.parametrize("kind", BAD_WORDS)
def test_a_site_that_cannot_be_believed_is_named_and_the_others_start(kind: str, tmp_path: Path) -> None:
    lies, word = BAD_WORDS[kind]
    record = federate(tmp_path, 1, lies)
    assert who_took_part(record) == [[0, 2, 3]] * 2
    assert any(note.startswith(f"left out: site-1: {word}: ") for note in record.manifest["notes"])
    assert len(json.dumps(record.manifest["notes"])) < 1000
    assert [size for (size,) in record.manifest["partition"]][1] == 0


def test_a_claim_above_the_operators_list_is_refused_by_name(tmp_path: Path) -> None:
    """Twice as many samples as it has: no rule but the list can tell."""
    sites = [Listed(name, 60, 60) for name in HOSPITALS]
    record = federate(tmp_path, 2, {"examples": 61}, sites=sites)
    assert who_took_part(record) == [[0, 1, 3]] * 2
    assert "left out: switzerland: examples: it claims 61, allowed 60 (in the list)" in record.manifest["notes"]


def test_a_run_goes_on_with_the_sizes_it_began_with(tmp_path: Path) -> None:
    """A site that claims more, or was left out at first, does not change a run that is under way, nor end it."""
    first = federate(tmp_path, 1, {"examples": 10**6})
    (tmp_path / "run" / "model.safetensors").unlink()
    again = federate(tmp_path, 0, {"examples": 50})
    assert again.manifest["partition"] == first.manifest["partition"]
    assert who_took_part(again) == [[0, 2, 3]] * 2


def test_too_few_sites_do_not_start(tmp_path: Path) -> None:
    with pytest.raises(QuorumLost, match=r"1 of 4 sites can take part \(site-1: version: .*site-2: did not join"):
        federate(tmp_path, 1, {"ecgr": "0.0.1", "version": "0.0.1"}, only=2)


def test_without_most_of_the_samples_nothing_starts(tmp_path: Path) -> None:
    sites = [Listed(name, size) for name, size in zip(HOSPITALS, (60, 44, 600, 60), strict=True)]
    with pytest.raises(QuorumLost, match=r"3 of 4 sites can take part \(switzerland: examples: it claims 601"):
        federate(tmp_path, 2, {"examples": 601}, sites=sites)


def claims(*sizes: int) -> dict[int, Enrolment]:
    said = {name: getattr(HONEST, name) for name in ("tests", "shape", "loss", "metrics", "parameters")}
    return {client: Enrolment(client=client, examples=size, **said) for client, size in enumerate(sizes)}


@pytest.mark.parametrize(
    ("sizes", "refused"),
    [
        ([20, 60, 200, 2000], []),
        ([1, 1, 1000], []),
        ([1, 1, 1001], [2]),
        ([100, 100, 100, 100_001, 100_001], [3, 4]),
        ([50, 50_000], []),
        ([50, 50_001], [1]),
    ],
)
def test_without_a_list_a_thousand_times_the_median_of_the_others_is_the_most(
    sizes: list[int], refused: list[int]
) -> None:
    assert sorted(left_out([Listed(f"site-{c}") for c in range(len(sizes))], claims(*sizes))) == refused


def test_sites_that_differ_without_a_majority_are_all_refused() -> None:
    sites = claims(10, 20)
    sites[1] = Enrolment(1, 20, 10, '{"features": 4}', "bce", ("auc",), "abc")
    with pytest.raises(ConfigError, match=r"""their shape: '\{"features": 3\}' at a; '\{"features": 4\}' at b"""):
        left_out([Listed("a"), Listed("b")], sites)


VALUES: list[Any] = [
    *(0, -1, 1, 1.0, 2**31, 2**40, 2**63 - 1, -(2**63), 0.5, float("nan"), float("inf"), True, False),
    *("", "0", "x" * 1001, "x" * 10**6, "[" * 990, "bce", '{"a":' * 190, '{"features": -1}', "{}", "null", "1" * 1000),
    *(
        '{"features": 1e999}',
        '{"features": true}',
        '{"features": "3"}',
        "\x00",
        "\u202e",
        "\ud7ff",
        "NaN",
        "1e5",
        "bce",
    ),
    *(b"", b"\xff" * 1000, [], [1, 2], [0.5], [True], ["auc"], ["auc"] * 65, ["x" * 10**5], [""], [b"x"]),
]


def fuzzed(rng: random.Random) -> dict[str, Any]:
    """An honest answer with some of it left out, exchanged, renamed or added."""
    said: dict[str, Any] = dict(HONEST.to_record())
    for name in rng.sample(sorted(said), rng.randint(1, 3)):
        match rng.randrange(4):
            case 0:
                del said[name]
            case 1:
                said[rng.choice(["", "client ", "x" * 5000, name.upper()])] = said.pop(name)
            case _:
                said[name] = rng.choice(VALUES)
    return said


def test_a_thousand_answers_are_read_or_refused_and_nothing_else_happens() -> None:
    rng, began, outcomes = random.Random(26), time.perf_counter(), {"read": 0, "refused": 0}
    tracemalloc.start()
    try:
        for _ in range(1000):
            said = fuzzed(rng)
            try:
                assert isinstance(Enrolment.from_record(ConfigRecord(said)), Enrolment)
                outcomes["read"] += 1
            except Refusal as refusal:
                assert len(str(refusal)) < 300
                assert str(refusal).isprintable()
                outcomes["refused"] += 1
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    assert min(outcomes.values()) > 5
    assert time.perf_counter() - began < 20


def joined(content: RecordDict | Error | None) -> Fleet:
    """Three nodes join: the one in the middle says ``content``, the others are honest."""

    def site(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        said = {**dict(HONEST.to_record()), "client": client}
        honest = Message(RecordDict({"site": ConfigRecord(said)}), reply_to=message)
        if client != 1:
            return honest
        reply = Message(content or RecordDict({}), reply_to=message)
        if content is None:
            reply.__dict__["_content"] = None
        return reply

    grid = MemoryGrid(site, [{"partition-id": client} for client in range(3)])  # type: ignore[arg-type]
    fleet = Fleet(grid, [Listed(f"site-{c}") for c in range(3)], clock=Ticks(), joining=True)
    fleet.wait_for(range(3), 3, 10.0)
    return fleet


def test_no_answer_keeps_others_from_joining() -> None:
    """Five hundred federations of three: one node answers at random, the others honestly."""
    rng = random.Random(12)
    for _ in range(500):
        lies = {**fuzzed(rng), **({"client": 1} if rng.random() < 0.5 else {})}
        fleet = joined(RecordDict({"site": ConfigRecord(lies)}))
        for client, reason in left_out(fleet.listed, fleet.sites).items():
            fleet.leave_out(client, reason)
        assert {0, 2} <= fleet.sites.keys() <= {0, 1, 2}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "expected a .*site"),
        ("site = 3", "expected a .*site"),
        ("[[site", "cannot be read"),
        ("[[site]]\nsamples = 3", "site.* 0: name: must be .*, got None"),
        ('[[site]]\nname = "../x"', "name: must be .*, got '../x'"),
        ('[[site]]\nname = "a"\n[[site]]\nname = "a"', "name: 'a' is given twice"),
        ('[[site]]\nname = "a"\nsamples = -1', "samples: must be .*, got -1"),
        ('[[site]]\nname = "a"\nsamples = 2.5', "samples: must be .*, got 2.5"),
        ('[[site]]\nname = "a"\nsize = 3', "unknown key 'size'; allowed: name, samples, tests"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "sites.toml").write_text(text)
    with pytest.raises(ConfigError, match=line):
        read_list(tmp_path / "sites.toml")


def test_an_answer_that_is_no_answer_keeps_nobody_from_joining() -> None:
    """Empty messages, errors, other records, and as the wire may give it neither content nor an error."""
    contents: list[RecordDict | Error | None] = [
        RecordDict({}),
        RecordDict({"site": MetricRecord({"client": 1})}),
        RecordDict({"sites": ConfigRecord({"client": 1})}),
        Error(code=10**9, reason="x" * 10**6),
        None,
    ]
    for content in contents:
        assert joined(content).sites.keys() == {0, 2}
