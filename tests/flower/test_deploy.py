"""What init writes, what it refuses, and what the ServerApp makes of it."""

import json
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
from flwr.app import Context, RecordDict

from ecgr.config.experiment import load
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower.bundles import read_site
from ecgr.flower.fleet import Listed, read_list
from ecgr.flower.folders import (
    SETTINGS,
    Deployment,
    Plan,
    client_from,
    nginx_config,
    server_from,
    write_deployment,
    write_folders,
)
from ecgr.flower.guard import Guard
from ecgr.flower.keys import fingerprint, make_certificates, make_node_key, read_public_key
from ecgr.flower.memory import MemoryGrid
from support.federations import federating, write_federation


def plan(*names: str, out: Path = Path("run"), min_clients: int = 2) -> Plan:
    chosen = load("quickstart", {"partition.clients": len(names)})
    return Plan(chosen, [Listed(name, 100) for name in names], Guard(min_clients=min_clients), out)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def init(out: Path, *more: str) -> Result:
    return federating("init", "--server", "fl.example.org", "--out", out, *more)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_federation(tmp_path_factory.mktemp("home") / "plan")


def test_certificates_are_for_the_hosts_and_signed_by_the_ca(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["fl.example.org", "127.0.0.1"])
    ca, server = (x509.load_pem_x509_certificate((tmp_path / name).read_bytes()) for name in ("ca.crt", "server.pem"))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert mode(tmp_path / "server.key") == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.crt", "server.key", "server.pem"]


def test_a_node_key_is_a_pair_and_never_written_over(tmp_path: Path) -> None:
    public, private = make_node_key(tmp_path / "etc"), tmp_path / "etc" / "node"
    assert (mode(tmp_path / "etc"), mode(private)) == (0o700, 0o600)
    before = private.read_bytes()
    key = load_ssh_private_key(before, password=None)
    assert read_public_key(public) == key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ConfigError, match="there is a key already"):
        make_node_key(tmp_path / "etc")
    assert private.read_bytes() == before
    public.write_text("no key")
    with pytest.raises(ConfigError, match=r"not a public key.*ecgr federate keys"):
        read_public_key(public)


def test_a_site_makes_its_own_key_and_tells_the_public_half(tmp_path: Path) -> None:
    result = federating("keys", "--out", tmp_path / "etc")
    assert result.exit_code == 0, result.output
    public = tmp_path / "etc" / "node.pub"
    assert sorted(path.name for path in public.parent.iterdir()) == ["node", "node.pub"]
    assert fingerprint(public) in result.output.replace("\n", "")
    assert "PRIVATE KEY" not in result.output
    if shutil.which("ssh-keygen") is not None:
        said = subprocess.run(["ssh-keygen", "-lf", str(public)], capture_output=True, text=True, check=True).stdout
        assert fingerprint(public) in said.split()


def test_init_makes_no_private_key_of_a_site_and_folders_for_the_owner_alone(written: Path) -> None:
    """Whatever is written for sites, the private keys are the server's own and the one that signs the code."""
    paths = [written, *written.rglob("*")]
    private = [path for path in paths if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(private) == [written / "server" / "server.key", written / "signing" / "signer"]
    assert {mode(path) for path in private} == {0o600}
    assert {mode(path) for path in paths if path.is_dir()} == {0o700}
    assert "ecgr federate keys --out /etc/ecgr" in (written / "README.md").read_text()


def test_init_writes_the_list_of_sites_and_sizes(tmp_path: Path) -> None:
    named = ["--local-data", "--site", "cleveland=303", "--site", "va"]
    (tmp_path / "own.toml").write_text('[data]\nname = "site"\n[model]\nname = "mlp"\n')
    for name, more in (("dealt", ["--clients", "3"]), ("own", named), ("loaded", [str(tmp_path / "own.toml")])):
        result = init(tmp_path / name, *more)
        assert result.exit_code == 0, result.output
    dealt = read_list(tmp_path / "dealt" / "server" / "sites.toml")
    assert [site.name for site in dealt] == ["site-0", "site-1", "site-2"]
    assert sum(site.samples or 0 for site in dealt) == 1438
    assert read_list(tmp_path / "own" / "server" / "sites.toml") == [Listed("cleveland", 303), Listed("va")]
    for name in ("own", "loaded"):
        app = (tmp_path / name / "server" / "app" / "ecgr_federation" / "apps.py").read_text()
        assert "local_data=True" in app
    assert "server/keys/cleveland.pub" in (tmp_path / "own" / "README.md").read_text()


def test_the_list_is_read_as_it_was_written_and_edited(tmp_path: Path) -> None:
    sites = [Listed("cleveland", 303, 61), Listed("site-1")]
    write_folders(tmp_path, replace(plan("a", "b"), sites=sites))
    written = tmp_path / "server" / "sites.toml"
    assert read_list(written) == sites
    assert "one site can then dominate the model" in written.read_text()
    written.write_text(written.read_text().replace("303", "404"))
    assert read_list(written)[0].samples == 404


@pytest.mark.parametrize("site", ["a=-1", "a=x", "../a=3", "a=1 --site a=2", "=3"])
def test_a_site_that_cannot_be_listed_is_refused(site: str, tmp_path: Path) -> None:
    result = init(tmp_path / "plan", "--site", *site.split(" "))
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("--site: ")
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_others_reach_needs_the_proxy() -> None:
    for address in ("0.0.0.0", "10.0.0.5", "::", "fl.example.org"):
        with pytest.raises(ConfigError, match="bind: "):
            Deployment("fl.example.org", bind=address, proxied=False)
        assert Deployment("fl.example.org", bind=address).proxied
    for address in ("127.0.0.1", "localhost", "::1", "127.0.0.53"):
        assert not Deployment("fl.example.org", bind=address, proxied=False).proxied


@pytest.mark.parametrize("server", ["", "a b", "x;return 200", "x\ny", "-x", "$(id)", "a" * 300])
def test_a_server_name_cannot_carry_anything_else(server: str) -> None:
    with pytest.raises(ConfigError, match="server: "):
        Deployment(server=server)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as refusal:
        Deployment(server="a b", port=0, body_limit=0, data="x")
    fields = [line.split(":")[0] for line in refusal.value.problems]
    assert fields == [f"Deployment.{name}" for name in ("server", "port", "body_limit", "data")]


def test_the_files_for_several_machines(written: Path) -> None:
    server, text = written / "server", (written / "README.md").read_text()
    assert "pip install 'ecgr" not in text
    assert "flower-superlink --host 127.0.0.1 " in text, "the Control API asks nobody who they are"
    assert f"chown -R ecgr: {written}\n" in text, "the services' user must be able to enter it"
    assert "who has the signing key decides which code" in " ".join(text.split()).replace("whoever", "who")
    for client, name in enumerate(["cleveland", "va"]):
        site = written / f"site-{client}"
        unit = (site / "ecgr-supernode.service").read_text()
        assert "bin/ecgr federate site /etc/ecgr\n" in unit
        assert read_site(site) == {"name": name, "client": client, "superlink": "fl.example.org:8443"}
        assert "Restart=always" in unit
        assert "ECGR_STATE=/var/lib/ecgr/state ECGR_DATA=/srv/ecgr/data" in unit
        assert (site / "ca.crt").read_bytes() == (server / "ca.crt").read_bytes()
    chosen = load("quickstart", {"partition.clients": 2})
    assert load(server / "app" / "ecgr_federation" / "experiment.toml").key() == chosen.key()
    assert json.loads((server / "server.json").read_bytes())["guard"]["min_clients"] == 2
    with pytest.raises(ConfigError, match="not empty"):
        write_deployment(written, plan("a", "b"), Deployment("fl.example.org"))


@pytest.mark.parametrize("path", ["relative", "/with space", "/per%cent", "/quo'te", "/new\nline", "/$(id)"])
def test_a_path_cannot_carry_anything_else(tmp_path: Path, path: str) -> None:
    for option in ("environment", "data"):
        with pytest.raises(ConfigError, match=f"{option}: "):
            Deployment("fl.example.org", **{option: path})  # type: ignore[arg-type]
    if path != "relative":
        with pytest.raises(ConfigError, match="out: "):
            write_deployment(tmp_path / path[1:], plan("a"), Deployment("fl.example.org"))


LOCKS = ("NoNewPrivileges=yes", "ProtectSystem=strict", "PrivateTmp=yes", "RestrictSUIDSGID=yes", "UMask=0077")


def test_services_have_a_user_of_their_own_and_little_else(written: Path) -> None:
    units = sorted(written.rglob("*.service"))
    assert {path.name for path in units} == {f"ecgr-{name}.service" for name in ("proxy", "superlink", "supernode")}
    for path in units:
        lines = path.read_text().splitlines()
        assert {"User=ecgr", *LOCKS} <= set(lines)
        (command,) = (line for line in lines if line.startswith("ExecStart="))
        assert command.startswith("ExecStart=/"), "an absolute path, and no shell"
        assert "/sh " not in command
        capabilities = "CapabilityBoundingSet=" + ("CAP_NET_BIND_SERVICE" if "proxy" in path.name else "")
        assert capabilities in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_understands_the_units(written: Path) -> None:
    """Whatever systemd says, it says nothing of the files themselves but that programs are not installed here."""
    for path in written.rglob("*.service"):
        done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if str(path) in line]
        assert said == [], said


def test_the_proxy_passes_what_sites_need_and_no_more() -> None:
    text = nginx_config(Path("/srv"), Deployment("fl.example.org", port=443, body_limit=32)).decode()
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
        app(MemoryGrid(None, []), Context(7, 1, {}, RecordDict(), {}))  # type: ignore[arg-type]


def test_a_site_whose_public_key_is_missing_cannot_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server knows a site by its key alone: without any it starts nothing, and says what to do."""
    write_deployment(tmp_path / "plan", plan("a", "b", out=tmp_path / "run"), Deployment("fl.example.org"))
    server = tmp_path / "plan" / "server"
    monkeypatch.setenv(SETTINGS, str(server / "server.json"))
    experiment = server / "app" / "ecgr_federation" / "experiment.toml"
    app = client_from(experiment)
    nodes = [{"partition-id": client, "state-dir": str(tmp_path)} for client in range(2)]
    with pytest.raises(QuorumLost, match="void 3 times"):
        MemoryGrid(app, nodes, keys=[b"a", b"b"]).serve(server_from(experiment))
