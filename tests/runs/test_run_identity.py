"""The commit of a checkout, however git keeps it."""

from pathlib import Path

import ecgr
from ecgr.runs.identity import commit

HASH = "0123456789abcdef0123456789abcdef01234567"


def test_a_branch_a_packed_branch_and_a_commit_by_itself(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text(f"{HASH}\n")
    assert commit(tmp_path) == HASH
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit(tmp_path) is None
    (tmp_path / ".git" / "packed-refs").write_text(f"# pack-refs with: peeled\n{HASH} refs/heads/main\n")
    assert commit(tmp_path) == HASH
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text(HASH[::-1])
    assert commit(tmp_path) == HASH[::-1]


def test_a_record_says_which_commit_made_it(tmp_path: Path) -> None:
    few = {"federation.rounds": 1, "partition.clients": 2, "data.table": True, "model.name": "mlp"}
    record = ecgr.run("quickstart", tmp_path / "run", settings=few)
    assert record.manifest["commit"] == commit()
