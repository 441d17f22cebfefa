"""Whose code a site runs: what is signed, what is shown, what is approved, and what is refused."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from flwr.supernode import start_client_internal as flower

from ecgr.config.experiment import presets
from ecgr.errors import ConfigError, IntegrityError
from ecgr.flower.audit import Audit, events_of
from ecgr.flower.bundles import approvals, files_in, read_bundle, run_site, sign_app, watched
from ecgr.flower.keys import fingerprint, make_node_key
from ecgr.wheel import WHEEL, pack_wheel
from support.federations import federating, write_federation


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_federation(tmp_path_factory.mktemp("home") / "plan")


@pytest.fixture
def home(written: Path, tmp_path: Path) -> Path:
    return copytree(written, tmp_path / "plan")


def approve(folder: Path, key: Path | None = None, *more: str, answer: str = "") -> Result:
    return federating("approve", key or folder / "signer.pub", "--folder", folder, *more, answer=answer)


def test_a_site_sees_the_code_approves_who_signed_it_and_can_withdraw_that(home: Path) -> None:
    site = home / "site-1"
    declined = approve(site, answer="n\n")
    assert declined.exit_code == 1
    assert approvals(site) == {}
    said = approve(site, answer="y\n")
    assert said.exit_code == 0, said.exception
    assert fingerprint(site / "signer.pub") in said.output
    for name, data in files_in(read_bundle(site)).items():
        assert name in said.output, name
        assert (name == "ecgr_federation/experiment.toml") == (
            '    | name = "digits"' in said.output and b"digits" in data
        )
    assert "client_from" not in said.output, "code that this version writes itself is not repeated"
    ((identifier, key),) = approvals(site).items()
    assert identifier.startswith("fpk_")
    assert key == (site / "signer.pub").read_text().strip()
    assert approve(site, None, "--withdraw").exit_code == 0
    assert approvals(site) == {}
    assert [event["event"] for event in events_of(site / "audit")] == ["approved", "withdrawn"]
    assert events_of(site / "audit")[0]["bundle"] == read_bundle(home / "server").hash_str


def test_code_of_ones_own_is_shown(home: Path) -> None:
    with (home / "server" / "app" / "ecgr_federation" / "apps.py").open("a") as file:
        file.write("import antigravity\n")
    sign_app(home / "server", home / "signing" / "signer", home / "site-0")
    assert "    | import antigravity\n" in approve(home / "site-0", None, "--yes").output


@pytest.mark.parametrize("what", ["content", "signature", "another key", "a node's key", "no key"])
def test_what_is_not_signed_as_it_is_cannot_be_approved(home: Path, what: str, tmp_path: Path) -> None:
    site, key = home / "site-0", home / "site-0" / "signer.pub"
    if what == "content":
        (site / "app.fab").write_bytes((site / "app.fab").read_bytes() + b"\0")
    elif what == "signature":
        (site / "app.signatures.json").write_text('{"fpk_x": "{}"}')
    elif what == "another key":
        sign_app(home / "server", tmp_path / "other")
        key = tmp_path / "other.pub"
    else:
        key = make_node_key(tmp_path / "node") if what == "a node's key" else tmp_path / "missing"
    result = approve(site, key, "--yes")
    expected = ConfigError if "key" in what and what != "another key" else IntegrityError
    assert isinstance(result.exception, expected), result.output
    assert approvals(site) == {}


def test_a_site_without_approvals_does_not_start(home: Path) -> None:
    with pytest.raises(ConfigError, match="nobody's code is approved"):
        run_site(home / "site-0")


@pytest.mark.parametrize("signed", ["by the approved key", "by another", "altered", "not at all"])
def test_flowers_own_check_decides_and_the_log_has_it(home: Path, signed: str, tmp_path: Path) -> None:
    """The step that takes in a message is Flower's, with its network replaced."""
    site, log = home / "site-0", Audit(tmp_path / "audit", "cleveland")
    assert approve(site, None, "--yes").exit_code == 0
    bundle = read_bundle(site) if signed != "by another" else sign_app(home / "server", tmp_path / "other")
    fab = bundle
    fab.content += b"\0" if signed == "altered" else b""
    fab.verifications = {} if signed == "not at all" else fab.verifications
    known: dict[int, Any] = {}
    state = SimpleNamespace(get_run=known.get, get_node_id=lambda: 1)
    state.get_run_series_context = lambda _: None
    state.store_run, state.store_fab = (lambda run: known.update({7: run})), lambda _: None
    state.set_run_series_context = lambda *_: None
    state.create_task = lambda **_: None
    state.store_message = lambda _: None
    run = SimpleNamespace(fab_hash=fab.hash_str, series_id=1, primary_task_type="", override_config={})
    metadata = SimpleNamespace(run_id=7, group_id="enrol", message_type="query", message_id="m")
    message = SimpleNamespace(metadata=metadata)
    pulled: dict[str, Callable[..., Any]] = {"receive": lambda: (message, None), "get_run": lambda _: run}
    pulled |= {"get_fab": lambda *_: fab, "pull_object": lambda *_: b"", "confirm_message_received": lambda *_: None}
    refusals: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flower, "Message", lambda error, reply_to: refusals.append(error.reason))
        patch.setattr(flower, "_insert_message", lambda *_: None)
        take = watched(flower._pull_and_store_message, log)
        rest = {"object_store": SimpleNamespace(), "node_config": {}, "trusted_entities": approvals(site)}
        take(state=state, **rest, **pulled)
    (event,) = events_of(tmp_path / "audit")
    accepted = signed == "by the approved key"
    assert (event["event"], bool(refusals)) == (("code", False) if accepted else ("refused", True))
    assert (event["run"], 7 in known) == (7, accepted)


@pytest.mark.slow
def test_the_wheel_is_this_package_and_pip_refuses_another(home: Path, tmp_path: Path) -> None:
    content, digest = pack_wheel(presets())
    assert pack_wheel(presets()) == (content, digest)
    for folder in ("server", "site-0"):
        assert (home / folder / WHEEL).read_bytes() == content
        (line,) = (home / folder / "requirements.txt").read_text().splitlines()
        assert line.endswith(f"{folder if folder == 'server' else '/etc/ecgr'}/{WHEEL}#sha256={digest}")
    names = zipfile.ZipFile(BytesIO(content)).namelist()
    assert {"ecgr/flower/audit.py", "ecgr/py.typed", "ecgr/experiments/quickstart.toml"} <= {*names}
    assert "torch" in [line.split("==")[0] for line in (home / "server" / "constraints.txt").read_text().splitlines()]
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target"]
    wheel = home / "server" / WHEEL
    requirement = f"ecgr @ {wheel.as_uri()}#sha256={digest}"
    done = subprocess.run([*pip, str(tmp_path / "there"), requirement], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there" / "ecgr" / "flower" / "audit.py").is_file()
    wheel.write_bytes(content.replace(b"ecgr", b"ecgR", 1))
    done = subprocess.run([*pip, str(tmp_path / "not"), requirement], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_check_names_the_file_and_the_site(home: Path) -> None:
    site = home / "site-1"
    result = federating("check", site)
    assert result.exit_code == 0, result.exception
    assert f"{site / 'experiment.toml'}: trains as va (client 1 of 2)" in result.output
    assert json.loads(federating("check", site, "--json").output)["site"] == "va"
    assert "is the folder of va" in str(federating("check", site, "--client", "0").exception)
