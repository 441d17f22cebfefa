"""What init writes, what it refuses, and what the ServerApp makes of it."""

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, RecordDict

from ecgr.config.experiment import load
from ecgr.errors import ConfigError
from ecgr.flower.apps.memory import MemoryGrid
from ecgr.flower.deploy.bundle import SETTINGS, server_from, write_settings
from ecgr.flower.deploy.init import Deployment, nginx_config, write_deployment
from ecgr.flower.deploy.keys import make_certificates, make_node_key, read_public_key
from ecgr.flower.guard.guard import Guard


def test_certificates_are_for_the_hosts_and_signed_by_the_ca(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["fl.example.org", "127.0.0.1"])
    ca, server = (x509.load_pem_x509_certificate((tmp_path / name).read_bytes()) for name in ("ca.crt", "server.pem"))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert stat.S_IMODE((tmp_path / "server.key").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.crt", "server.key", "server.pem"]


def test_a_node_key_is_a_pair(tmp_path: Path) -> None:
    private = make_node_key(tmp_path)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    key = load_ssh_private_key(private.read_bytes(), password=None)
    assert b"BEGIN PUBLIC KEY" in read_public_key(tmp_path / "node.pub")
    assert key.public_key() is not None


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.5", "::", "fl.example.org"])
def test_an_address_that_others_reach_needs_the_proxy(address: str) -> None:
    with pytest.raises(ConfigError, match="--bind"):
        Deployment("fl.example.org", 3, bind=address, proxied=False)
    assert Deployment("fl.example.org", 3, bind=address).proxied


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1", "127.0.0.53"])
def test_loopback_needs_none(address: str) -> None:
    assert not Deployment("fl.example.org", 3, bind=address, proxied=False).proxied


@pytest.mark.parametrize("server", ["", "a b", "x;return 200", "x\ny", "-x", "$(id)", "a" * 300])
def test_a_server_name_cannot_carry_anything_else(server: str) -> None:
    with pytest.raises(ConfigError, match="--server"):
        Deployment(server, 3)


def test_all_that_does_not_fit_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as refusal:
        Deployment("a b", 3, bind="0.0.0.0", port=0, body_limit=0, proxied=False)
    assert [line.split(":")[0] for line in refusal.value.problems] == ["--server", "--port", "--body-limit", "--bind"]


def test_the_files_for_several_machines(tmp_path: Path) -> None:
    chosen = load("quickstart", {"partition.clients": 2})
    guide = write_deployment(tmp_path / "plan", chosen, Deployment("fl.example.org", 2), Guard(min_clients=2))
    server = tmp_path / "plan" / "server"
    text = guide.read_text()
    assert "flower-supernode --superlink fl.example.org:8443" in text
    assert "the server can run code at every site" in text
    for client in range(2):
        site = tmp_path / "plan" / f"site-{client}"
        unit = (site / "ecgr-supernode.service").read_text()
        assert f"partition-id={client}" in unit
        assert "Restart=always" in unit
        assert "ECGR_STATE=/var/lib/ecgr/state ECGR_DATA=/srv/ecgr/data" in unit
        assert (site / "node.pub").read_bytes() == (server / f"site-{client}.pub").read_bytes()
    assert load(server / "app" / "ecgr_federation" / "experiment.toml").key() == chosen.key()
    assert json.loads((server / "server.json").read_bytes())["guard"]["min_clients"] == 2
    assert not list(server.rglob("node"))
    with pytest.raises(ConfigError, match="not empty"):
        write_deployment(tmp_path / "plan", chosen, Deployment("fl.example.org", 2), Guard())


@pytest.mark.parametrize("path", ["relative", "/with space", "/per%cent", "/quo'te", "/new\nline", "/$(id)"])
def test_a_path_cannot_carry_anything_else(tmp_path: Path, path: str) -> None:
    for option in ("environment", "data"):
        with pytest.raises(ConfigError, match=f"--{option}"):
            Deployment("fl.example.org", 2, **{option: path})  # type: ignore[arg-type]
    if path != "relative":
        with pytest.raises(ConfigError, match="--out"):
            write_deployment(tmp_path / path[1:], load("quickstart"), Deployment("fl.example.org", 2), Guard())


LOCKS = ("NoNewPrivileges=yes", "ProtectSystem=strict", "PrivateTmp=yes", "RestrictSUIDSGID=yes", "UMask=0077")


def test_services_have_a_user_of_their_own_and_little_else(tmp_path: Path) -> None:
    write_deployment(tmp_path / "plan", load("quickstart"), Deployment("fl.example.org", 1, port=443), Guard())
    units = sorted((tmp_path / "plan").rglob("*.service"))
    assert [path.name for path in units] == ["ecgr-proxy.service", "ecgr-superlink.service", "ecgr-supernode.service"]
    for path in units:
        lines = path.read_text().splitlines()
        assert {"User=ecgr", *LOCKS} <= set(lines)
        (command,) = (line for line in lines if line.startswith("ExecStart="))
        assert command.startswith("ExecStart=/"), "an absolute path, and no shell"
        assert "/sh " not in command
        capabilities = "CapabilityBoundingSet=" + ("CAP_NET_BIND_SERVICE" if "proxy" in path.name else "")
        assert capabilities in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """Whatever systemd says, it says nothing of the files themselves but that programs are not installed here."""
    write_deployment(tmp_path / "plan", load("quickstart"), Deployment("fl.example.org", 1), Guard())
    for path in (tmp_path / "plan").rglob("*.service"):
        done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if str(path) in line]
        assert said == [], said


def test_the_proxy_passes_what_sites_need_and_no_more() -> None:
    text = nginx_config(Path("/srv"), Deployment("fl.example.org", 2, port=443, body_limit=32))
    assert "location / { return 403; }" in text
    assert text.count("proxy_pass ") == 1
    assert "proxy_pass https://127.0.0.1:8000/v1/fleet/;" in text
    assert "client_max_body_size 32m;" in text
    assert "listen 443 ssl;" in text


def test_a_server_without_its_settings_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(SETTINGS, raising=False)
    app = server_from(tmp_path / "experiment.toml")
    with pytest.raises(ConfigError, match=r"\$ECGR_FEDERATION is not set"):
        app(MemoryGrid(None, []), Context(7, 1, {}, RecordDict(), {}))  # type: ignore[arg-type]
    monkeypatch.setenv(SETTINGS, str(tmp_path / "nowhere.json"))
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be used"):
        server_from(tmp_path / "experiment.toml")
    write_settings(tmp_path / "server.json", tmp_path / "run", Guard(), {0: b"key"})
    monkeypatch.setenv(SETTINGS, str(tmp_path / "server.json"))
    assert server_from(tmp_path / "experiment.toml") is not None
