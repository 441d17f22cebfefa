"""Who speaks for whom, and what a site lets out.

Sites that say too much, too big or nonsense when they join are left out by name, within bounds; the others start.
"""

import json
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict

from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower import Guard, MemoryGrid, client_app
from ecgr.flower.fleet import Enrolment, Fleet, Listed, left_out, read_list
from ecgr.flower.wire import Refusal
from ecgr.runs.record import RunRecord
from ecgr.simulation.prepare import prepare
from support.federations import CLIENTS, Ticks, experiment, federate, nodes
from support.hospitals import HOSPITALS, federate_hospitals, hospital_experiment, hospital_nodes, write_hospitals
from support.problems import offer, small_net


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


HONEST = Enrolment(0, 40, 10, '{"features": 3}', "bce", ("auc",), "abc")


def lying(
    folder: Path, client: int, lies: Mapping[str, Any], kind: str = "query", only: int = 4, **server: Any
) -> RunRecord:
    """Four hospitals, one of which says ``lies`` when it joins (or when it scores a model), to the end of the run."""
    if not (folder / "sites").exists():
        write_hospitals(folder)
    chosen = hospital_experiment(rounds=2)
    honest = client_app(chosen, local_data=True)

    def answer(message: Message, context: Context) -> Message:
        reply = honest(message, context)
        if message.metadata.message_type == kind and context.node_config["partition-id"] == client:
            reply.content["site" if kind == "query" else "metrics"].update(lies)
        return reply

    options = {"guard": Guard(deadline=60, norm_factor=1e6), "sites": hospital_nodes(folder)[:only], **server}
    return federate_hospitals(chosen, folder, folder / "run", app=answer, **options)


def who_took_part(record: RunRecord) -> list[list[int]]:
    return [[client["client"] for client in row["clients"]] for row in record.rounds]


BAD_WORDS: dict[str, tuple[dict[str, Any], str]] = {
    "a trillion samples": ({"examples": 2**40}, "examples"),
    "a trillion tests": ({"tests": 2**40}, "tests"),
    "nested": ({"shape": "[" * 990}, "shape"),
    "long names": ({"metrics": ["x" * 10**7]}, "metrics"),
    "a long shape": ({"shape": "x" * 10**7}, "shape"),
    "another version": ({"version": "0.0.1"}, "version"),
    "another task": ({"shape": '{"features": 2147483647}'}, "shape"),
    "another model": ({"parameters": "abc"}, "parameters"),
}


@pytest.mark.parametrize("kind", BAD_WORDS)
def test_a_site_that_cannot_be_believed_is_named_and_the_others_start(kind: str, tmp_path: Path) -> None:
    lies, word = BAD_WORDS[kind]
    record = lying(tmp_path, 1, lies)
    assert who_took_part(record) == [[0, 2, 3]] * 2
    assert any(note.startswith(f"left out: site-1: {word}: ") for note in record.manifest["notes"])
    assert len(json.dumps(record.manifest["notes"])) < 1000
    assert [size for (size,) in record.manifest["partition"]][1] == 0


def test_a_claim_above_the_operators_list_is_refused_by_name(tmp_path: Path) -> None:
    """Twice as many samples as it has: no rule but the list can tell."""
    record = lying(tmp_path, 2, {"examples": 61}, listed=[Listed(name, 60, 60) for name in HOSPITALS])
    assert who_took_part(record) == [[0, 1, 3]] * 2
    assert "left out: switzerland: examples: it claims 61, allowed 60 (in the list)" in record.manifest["notes"]


def test_a_run_goes_on_with_the_sizes_it_began_with(tmp_path: Path) -> None:
    """A site that claims more, or was left out at first, does not change a run that is under way, nor end it."""
    first = lying(tmp_path, 1, {"examples": 10**6})
    (tmp_path / "run" / "model.safetensors").unlink()
    again = lying(tmp_path, 0, {"examples": 50})
    assert again.manifest["partition"] == first.manifest["partition"]
    assert who_took_part(again) == [[0, 2, 3]] * 2


def test_too_few_sites_or_without_most_of_the_samples_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(QuorumLost, match=r"1 of 4 sites can take part \(site-1: version: .*site-2: did not join"):
        lying(tmp_path, 1, {"version": "0.0.1"}, only=2)
    listed = [Listed(name, size) for name, size in zip(HOSPITALS, (60, 44, 600, 60), strict=True)]
    with pytest.raises(QuorumLost, match=r"3 of 4 sites can take part \(switzerland: examples: it claims 601"):
        lying(tmp_path, 2, {"examples": 601}, listed=listed)


@pytest.mark.parametrize(("name", "score"), [("metric/auc", 2.47), ("metric/accuracy", -0.1)])
def test_a_score_out_of_range_is_not_used_and_its_site_named(name: str, score: float, tmp_path: Path) -> None:
    for row in lying(tmp_path, 2, {name: score}, kind="evaluate").rounds:
        (refused,) = row["rejected"]
        assert refused == {"client": 2, "reason": f"evaluation: score: {name} is {score}, allowed 0 to 1"}
        assert all(0 <= value <= 1 for value in row["metrics"].values())


def claims(*sizes: int) -> dict[int, Enrolment]:
    return {client: replace(HONEST, client=client, examples=size) for client, size in enumerate(sizes)}


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
    sites = {0: HONEST, 1: replace(HONEST, client=1, shape='{"features": 4}')}
    with pytest.raises(ConfigError, match=r"""their shape: '\{"features": 3\}' at a; '\{"features": 4\}' at b"""):
        left_out([Listed("a"), Listed("b")], sites)


VALUES: list[Any] = [
    *(0, -1, 1, 1.0, 2**31, 2**40, 2**63 - 1, -(2**63), 0.5, float("nan"), float("inf"), True, False),
    *("", "0", "x" * 1001, "x" * 10**6, "[" * 990, "bce", '{"a":' * 190, '{"features": -1}', "{}", "null", "1" * 1000),
    *('{"features": 1e999}', '{"features": true}', '{"features": "3"}', "\x00", "\u202e", "\ud7ff", "NaN", "1e5"),
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


KEYS = [bytes([65 + client]) for client in range(CLIENTS)]


def present(root: Path, clients: Sequence[Any], *, alpha: float = 0.5, keys: Sequence[bytes] = ()) -> dict[int, int]:
    """Which node is taken for which client, where nodes say that they are ``clients``."""
    chosen = experiment("fedavg")
    dataset, site = chosen.source.load(), client_app(chosen.replace({"partition.alpha": alpha}))
    grid = MemoryGrid(site, nodes(root, clients), keys=keys)
    fleet = Fleet(grid, keys=dict(enumerate(keys)) if keys else None, clock=Ticks())
    return fleet.expect(prepare(chosen, dataset), dataset.shape).present()


@pytest.mark.parametrize(
    ("clients", "keys", "found"),
    [
        ([2, 0, 3, 1], (), {2: 1000, 0: 1013, 3: 1026, 1: 1039}),
        ([0, 1, 1], (), {0: 1000, 1: 1013}),  # who comes later cannot take a place over
        ([0, 0, 2, 3], KEYS, {0: 1000, 2: 1026, 3: 1039}),  # nor speak for another
        *(([0, identity], (), {0: 1000}) for identity in (None, -1, CLIENTS, "0", True)),
    ],
)
def test_nodes_are_known_by_the_client_they_name(
    clients: list[Any], keys: Sequence[bytes], found: dict[int, int], tmp_path: Path
) -> None:
    assert present(tmp_path, clients, keys=keys) == found


def test_a_node_with_other_data_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert present(tmp_path, [0], alpha=0.05) == {}
    assert "site-0 cannot join: examples: it holds other data" in caplog.text


def test_an_exceptions_text_stays_at_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The site's own log has it; nothing that the server writes or hears does."""
    heard, canary = [], "canary-51f0: patient 4711"

    def fail(*_: object) -> None:
        raise ValueError(canary)

    def listen(node: int, order: Message, reply: Message) -> list[Message]:
        heard.append(repr(reply))
        return [reply]

    monkeypatch.setattr("ecgr.flower.site.answer", fail)
    with pytest.raises(QuorumLost) as lost:
        federate(experiment("fedavg"), tmp_path / "run", tamper=listen)
    assert canary in caplog.text
    assert "ValueError (code 101)" in str(lost.value)
    assert canary not in str(lost.value)
    assert len(heard) == 9
    assert not any(canary in text for text in heard)
    assert not any(canary.encode() in path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert RunRecord.open(tmp_path / "run").rounds == []


def test_without_flower_one_is_told_what_to_install() -> None:
    script = "import sys; sys.modules['flwr'] = None\nimport ecgr.flower"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "a federation needs packages of the extra 'flower': pip install 'flwr" in done.stderr
