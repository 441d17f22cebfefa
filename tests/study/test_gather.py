"""Gathering keeps what a comparison wrote, with the commits of its runs."""

import json
from pathlib import Path

import pytest
from study.gather import gather


def finished(place: Path, commits: list[str | None]) -> Path:
    place.mkdir()
    for number, commit in enumerate(commits):
        run = place / f"run-{number}"
        run.mkdir()
        manifest = {"commit": commit, "versions": {"torch": "2"}, "machine": {"cores": 2}}
        (run / "run.json").write_text(json.dumps(manifest))
    (place / "comparison.json").write_text('{"pairs": []}')
    return place


def test_a_comparison_is_kept_under_its_name_with_its_commits(tmp_path: Path) -> None:
    kept = gather(finished(tmp_path / "compare-digits", ["b", "a", "b"]), tmp_path / "data")
    assert kept == tmp_path / "data" / "digits"
    assert (kept / "comparison.json").read_text() == '{"pairs": []}'
    source = json.loads((kept / "source.json").read_text())
    assert source == {"commits": ["a", "b"], "machines": [{"cores": 2}], "runs": 3, "versions": [{"torch": "2"}]}


def test_a_commit_that_no_record_names_is_asked_for(tmp_path: Path) -> None:
    place = finished(tmp_path / "compare-digits", [None])
    with pytest.raises(ValueError, match="do not name their commit"):
        gather(place, tmp_path / "data")
    kept = gather(place, tmp_path / "data", "abc")
    assert json.loads((kept / "source.json").read_text())["commits"] == ["abc"]


def test_what_is_not_finished_or_has_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not finished"):
        gather(tmp_path, tmp_path / "data")
    with pytest.raises(ValueError, match=r"no run\.json"):
        gather(finished(tmp_path / "compare-digits", []), tmp_path / "data")
