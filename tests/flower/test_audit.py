"""What a federation's logs say: both sides alike, no values, whole but for a line that a crash cut short."""

import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from ecgr.config.experiment import Experiment, load
from ecgr.config.methods import Method
from ecgr.errors import EnvironmentFault, QuorumLost
from ecgr.flower import Guard
from ecgr.flower.audit import Audit, described, events_of, files_of
from ecgr.flower.fleet import Listed
from ecgr.simulation.prepare import prepare
from support.bad_replies import only, with_array
from support.federations import federate, federating

SECURITY = (Path(__file__).parents[2] / "docs" / "guide" / "security.md").read_text()
NAMES = ("cleveland", "va")
FACTS = ("kind", "round", "sha256", "norm", "bytes", "count", "arrays", "numbers")


def small(method: str = "fedavg", rounds: int = 2) -> Experiment:
    sizes = {"data.fraction": 0.1, "partition.clients": 2, "federation.rounds": rounds}
    return load("quickstart", {**sizes, **Method.of(method).settings})


def logged(chosen: Experiment, root: Path, **more: Any) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """The server's events, and those of each site."""
    sites = []
    for client, name in enumerate(NAMES):
        places = {key: str(root / name / key) for key in ("state-dir", "audit-dir")}
        sites.append({"partition-id": client, "name": name, **places})
    listed = [Listed(name) for name in NAMES]
    federate(chosen, root / "run", sites=sites, listed=listed, audit=root / "audit", **more)
    return events_of(root / "audit"), [events_of(root / name / "audit-dir") for name in NAMES]


def facts(events: list[dict[str, Any]], what: str) -> list[list[Any]]:
    return [[event[fact] for fact in FACTS] for event in events if event["event"] == what and event["kind"] != "query"]


def test_what_one_side_sent_is_what_the_other_received(tmp_path: Path) -> None:
    server, sites = logged(small("scaffold"), tmp_path)
    for name, site in zip(NAMES, sites, strict=True):
        here = [event for event in server if event.get("site") == name and event["event"] in {"sent", "received"}]
        assert facts(here, "received") == facts(site, "sent")
        assert facts(here, "sent") == facts(site, "received")
        assert [event["round"] for event in site if event["event"] == "sent"] == ["enrol", "1.1", "2.1"]
        assert {event["at"] for event in site} == {name}
    assert [event["used"] for event in server if event["event"] == "round"] == [["cleveland", "va"]] * 2
    assert [event["event"] for event in server if "run" in event] == ["begin", "end"]


def test_who_is_not_used_is_named_with_the_reason(tmp_path: Path) -> None:
    spoil = only(1, with_array(lambda update: update * np.float32("nan")), "1.1")
    server, _ = logged(small(), tmp_path, tamper=spoil, guard=Guard(min_clients=1))
    (refused,) = [event for event in server if event["event"] == "refused"]
    assert (refused["site"], refused["round"]) == ("va", "1.1")
    assert refused["reason"].startswith("nonfinite")
    assert [event["used"] for event in server if event["event"] == "round"][-1] == ["cleveland", "va"]
    spoiled = [event for event in server if event["event"] == "received" and event["norm"] is None]
    assert [event["site"] for event in spoiled] == ["va"]


def test_a_site_that_is_gone_is_named_and_named_again_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = small(rounds=3)
    sizes = prepare(chosen, chosen.source.load()).partition.sizes()
    smaller = sizes.index(min(sizes))  # the other has half of the samples, without which no round counts
    name = NAMES[smaller]

    gone = only(smaller, lambda order, _: [Message(Error(5, "as Flower says it"), reply_to=order)], "2.1")
    server, _ = logged(chosen, tmp_path, tamper=gone, guard=Guard(min_clients=1))
    assert f"round 2: {name}: not used, failed (SuperNode gone)" in caplog.text
    assert f"round 3: {name} is back" in caplog.text
    (refused,) = [event for event in server if event["event"] == "refused"]
    assert (refused["site"], refused["round"], refused["reason"]) == (name, "2.1", "failed: SuperNode gone")
    assert [len(event["used"]) for event in server if event["event"] == "round"] == [2, 1, 2]


def test_a_site_that_cannot_log_sends_nothing(tmp_path: Path) -> None:
    chosen = small(rounds=1)
    (tmp_path / "file").write_text("a file where a folder should be")
    node = {"partition-id": 0, "state-dir": str(tmp_path), "audit-dir": str(tmp_path / "file" / "audit")}
    with pytest.raises(QuorumLost, match="0 of 2 replies usable"):
        federate(chosen, tmp_path / "run", sites=[node], guard=Guard(min_clients=1))
    with pytest.raises(EnvironmentFault, match="the audit log cannot be written"):
        Audit(tmp_path / "file").write("start")


def rows(page: str) -> dict[str, tuple[set[str], set[str]]]:
    """The table of the guide: what goes to a site and what comes from it, by method."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for line in page.splitlines():
        methods, *ways = ([*re.findall(r"`([^`]+)`", cell)] for cell in line.strip("|").split("|"))
        if len(ways) == 2 and all(ways) and "params" in ways[0]:
            found |= {method: ({*ways[0]}, {*ways[1]}) for method in methods}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", rows(SECURITY))
def test_the_guide_says_what_leaves_a_site(method: str, tmp_path: Path) -> None:
    down, up = rows(SECURITY)[method]
    _, (site, _) = logged(small(method), tmp_path)
    for event, named in (("received", down), ("sent", up)):
        messages = [each for each in site if each["event"] == event and each["kind"] == "train"]
        assert {array["name"] for array in messages[-1]["arrays"]} == named
        for message in messages:
            assert {array["name"] for array in message["arrays"]} <= named, "a first round has no direction yet"
            for array in message["arrays"]:
                steps = "steps" in array["name"]
                assert array["dtype"] == ("float64" if steps else "float32")
                assert array["shape"] == ([] if steps else [61706])
                assert array["bytes"] == 128 + (8 if steps else 4 * 61706)


def test_a_crash_loses_the_line_it_was_writing_and_no_other(tmp_path: Path) -> None:
    log = Audit(tmp_path / "audit")
    for number in range(3):
        log.write("round", number=number)
    path = tmp_path / "audit" / "audit.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    assert [event["event"] for event in events_of(path.parent)] == ["round", "round", "torn"]
    log.write("round", number=3)
    assert [event.get("number") for event in events_of(path.parent)] == [0, 1, None, 3]


def test_a_log_is_for_its_owner_and_begins_a_new_file_when_it_is_full(tmp_path: Path) -> None:
    log = Audit(tmp_path / "audit", most_bytes=500)
    for number in range(20):
        log.write("round", number=number)
    files = files_of(log.folder or tmp_path)
    assert len(files) > 3
    assert [event["number"] for event in events_of(tmp_path / "audit")] == [*range(20)]
    assert {path.stat().st_size <= 500 for path in files} == {True}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "audit").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o700
    target = tmp_path / "elsewhere"
    files[-1].rename(target)
    files[-1].symlink_to(target)
    before = target.read_bytes()
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        Audit(tmp_path / "audit").write("round")
    assert target.read_bytes() == before


HOSTILE: Mapping[str, Array] = {
    "nan": Array(np.full(3, np.nan)),
    "shape": Array("float32", (10**9, 10**9), "numpy.ndarray", b"x"),
    "negative": Array("float32", (-1,), "numpy.ndarray", b"x" * 64),
    "dtype": Array("O" * 10**6, (1,), "numpy.ndarray", b"x" * 64),
    "n" * 10**6: Array(np.ones(2)),
}


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: name[:10])
def test_whatever_arrives_is_described_within_bounds(name: str, tmp_path: Path) -> None:
    content = RecordDict({"arrays": ArrayRecord({name: HOSTILE[name]}), "x": ConfigRecord({"k" * 10**6: 1})})
    Audit(tmp_path).message("received", content)
    (event,) = events_of(tmp_path)
    assert len(json.dumps(event)) < 2000
    assert event["norm"] is None or name.startswith("nn")
    assert described("TimeoutError") == {"reason": "unreadable: TimeoutError"}


def test_the_log_is_printed_for_a_person_or_as_it_is(tmp_path: Path) -> None:
    Audit(tmp_path / "audit", "va").write("refused", site="va", reason="failed: \x1b[31mred")
    said = federating("log", tmp_path).output
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  va  refused   va: failed: \\x1b\[31mred\n", said)
    assert json.loads(federating("log", tmp_path / "audit", "--json").output)["event"] == "refused"
    assert "no audit log there" in str(federating("log", tmp_path / "nowhere").exception)
