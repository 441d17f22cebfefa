"""The code that sites run: a bundle of the app, its signatures, what a site approves, and the run that is made of it.

Flower ships the app from the server to the sites as one archive, the bundle. Whoever answers for the code signs the
bundle with an Ed25519 key; a site's SuperNode runs it only if a key that the site has approved has signed it. The check
is Flower's own (``--trusted-entities``), made at the site over the bytes that arrived. Flower carries signatures only
with apps of its own platform: `flwr run` of a folder sends none, and a SuperNode that has approvals refuses it. So the
bundle is put into the SuperLink's store together with its signatures, and the run is started from there.

A site's folder has what its SuperNode needs, which is Flower's own, with a line in the audit log for all code it gets::

    site.toml       the site's name and number, and where the server is
    ca.crt, node    whom it trusts, and who it is
    approved.json   whose code it runs; without any it does not start: to Flower, no list means that all may run
"""

import getpass
import json
import os
import sys
import time
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter
from zipfile import BadZipFile, ZipFile

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign
from flwr.superlink.federation import NoOpFederationManager
from flwr.supernode import start_client_internal as flower
from flwr.supernode.cli import flower_supernode

from ecgr.errors import ConfigError, EnvironmentFault, IntegrityError, refused
from ecgr.files import write_atomically
from ecgr.flower.audit import PLACE, Audit
from ecgr.flower.fleet import Listed
from ecgr.flower.keys import fingerprint, read_public_key, signing_key
from ecgr.runs.record import to_json

BUNDLE, SIGNATURES, APPROVED, SITE_FILE = "app.fab", "app.signatures.json", "approved.json", "site.toml"
CONNECTION, APP = "here", "@ecgr/ecgr-federation"
EXPERIMENTS = ("experiment.toml", "task.json")
"""What the experiment in a bundle may be called."""

MOST_BYTES = 100 * 2**20
"""What a bundle may unpack to."""

UNSIGNED = "code: no key that this site has approved has signed this bundle"
LICENCE = "valid_license"
"""The entry beside signatures by which Flower's SuperNode knows that there may be any."""


def read_bundle(folder: Path) -> Fab:
    """The bundle and its signatures in ``folder``, of a server or a site."""
    with refused(f"{folder}: no signed bundle there", f"; expected {BUNDLE}, {SIGNATURES}"):
        content, signatures = (folder / BUNDLE).read_bytes(), json.loads((folder / SIGNATURES).read_bytes())
        return Fab(sha256(content).hexdigest(), content, {**signatures, LICENCE: "Valid"})


def files_in(bundle: Fab) -> dict[str, bytes]:
    """A bundle's files by path."""
    try:
        with ZipFile(BytesIO(bundle.content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise IntegrityError(f"{BUNDLE}: unpacks to more than {MOST_BYTES:,} bytes")
            return {entry.filename: archive.read(entry) for entry in archive.infolist()}
    except (BadZipFile, OSError, RuntimeError) as error:
        raise IntegrityError(f"{BUNDLE}: not an app bundle: {error}") from None


def hashes(bundle: Fab, *, config: bool = True) -> dict[str, Any]:
    """What a log says of a bundle: its hash, that of its experiment, and who is said to have signed it."""
    signers = [key[:40] for key in bundle.verifications if key != LICENCE][:10]
    said = {"bundle": sha256(bundle.content).hexdigest(), "signed_by": signers}
    if config:
        experiments = [data for name, data in files_in(bundle).items() if name.endswith(EXPERIMENTS)]
        said["config"] = sha256(b"".join(experiments)).hexdigest()
    return said


def key_id(public: Path) -> tuple[str, str]:
    """The id under which a public key's signatures are found, and the key itself on one line."""
    with refused(f"{public}: not a public key"):
        key = load_ssh_public_key(public.read_bytes())
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{public}: expected an Ed25519 key; the key of who signs the code, not a site's")
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return f"fpk_{sha256(raw).hexdigest()[:32]}", key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def sign_app(server: Path, key: Path, *copies: Path) -> Fab:
    """Make the bundle of ``server/app``, sign it, and put it there and into the folders of ``copies``."""
    private, public = signing_key(key), key.with_name(f"{key.name}.pub")
    content, now = build_fab_from_disk(server / "app"), int(time.time())
    signature = private.sign(create_message_to_sign(sha256(content).digest(), now))
    said = {"signature": urlsafe_b64encode(signature).decode().rstrip("="), "signed_at": now}
    signatures = {key_id(public)[0]: json.dumps(said)}
    for folder in (server, *copies):
        write_atomically(folder / BUNDLE, content)
        write_atomically(folder / SIGNATURES, to_json(signatures, indent=2))
    return read_bundle(server)


def signed_by(folder: Path, public: Path) -> Fab:
    """A site's bundle, if this key has signed it as it is."""
    bundle, (identifier, line) = read_bundle(folder), key_id(public)
    with suppress(ValueError, KeyError, TypeError):  # what claims to be a signature is none
        if flower._verify_fab(bundle, {identifier: line}):
            return bundle
    raise IntegrityError(f"{folder / BUNDLE}: not signed by {public} ({fingerprint(public)}); do not approve it")


def approvals(folder: Path) -> dict[str, str]:
    """The keys that a site has approved, by id."""
    path = folder / APPROVED
    with refused(f"{path}: cannot be read"):
        return dict(json.loads(path.read_bytes())) if path.exists() else {}


def log_of(folder: Path) -> Audit:
    """The log of the site in ``folder``: there, or where ``$ECGR_AUDIT`` says."""
    return Audit(Path(os.environ.get(PLACE) or folder / "audit").resolve(), read_site(folder)["name"])


def approve(folder: Path, public: Path, *, withdraw: bool = False) -> None:
    """Let a site run what a key has signed, or no longer; the SuperNode reads it when it is started."""
    audit, (identifier, line) = log_of(folder), key_id(public)
    kept = {known: key for known, key in approvals(folder).items() if known != identifier}
    seen = {} if withdraw else hashes(signed_by(folder, public))
    audit.write("withdrawn" if withdraw else "approved", key=identifier, fingerprint=fingerprint(public), **seen)
    write_atomically(folder / APPROVED, to_json(kept if withdraw else {**kept, identifier: line}, indent=2))


@contextmanager
def control(server: Path, what: str) -> Iterator[ControlHttpClient]:
    """Whoever answers for the SuperLink of ``server``, which runs on this machine, to do ``what``."""
    settings = tomllib.loads((server / "flwr" / "config.toml").read_text())["superlink"][CONNECTION]
    address, ca = settings["address"], Path(settings["root-certificates"]).read_bytes()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    client = ControlHttpClient.from_server_address(address, False, ca, [RuntimeVersionHttpInterceptor("ecgr")])
    try:
        yield client
    except httpx.HTTPError as error:
        raise EnvironmentFault(f"the SuperLink at {address} did not {what}: {error}") from None
    finally:
        client.close()


def register(server: Path, public: Path) -> None:
    """Let in the site that holds a key."""
    with control(server, f"register {public}") as client:
        client.RegisterNode(RegisterNodeRequest(public_key=read_public_key(public)))


def start_run(server: Path) -> int:
    """Have the SuperLink run the signed bundle; Flower's number of the run."""
    bundle, audit, person = read_bundle(server), Audit(server / "audit"), getpass.getuser()
    if behind := os.environ.get("SUDO_USER"):
        person += f" ({behind})"
    try:
        with control(server, "start the run") as client, catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # of Alembic, as Flower calls it
            store = LinkStateFactory(str(server / "superlink.db"), NoOpFederationManager(), ObjectStoreFactory())
            store.state().store_app(bundle, NOOP_FEDERATION_ID, APP, TaskType.SERVER_APP, added_by="ecgr")
            request = StartRunRequest(app_spec=APP, fab=fab_to_proto(Fab(bundle.hash_str, b"", {})))
            run = int(client.StartRun(request).run_id)
    except EnvironmentFault as error:
        audit.write("refused", by=person, **hashes(bundle), reason=f"not started: {error}")
        raise
    audit.write("start", run=run, by=person, **hashes(bundle))
    return run


def read_site(folder: Path) -> dict[str, Any]:
    """What the operator said of a site: ``name``, ``client``, ``superlink``."""
    path = folder / SITE_FILE
    try:
        site = tomllib.loads(path.read_text())
        return {"name": Listed(site["name"]).name, "client": int(site["client"]), "superlink": str(site["superlink"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not a site's file: {error}") from None


def run_site(folder: Path, more: Sequence[str] = ()) -> None:
    """Run the SuperNode of the site in ``folder`` until it is stopped; ``more`` is given to `flower-supernode`."""
    site, trusted, log = read_site(folder), approvals(folder), log_of(folder)
    if not trusted:
        raise ConfigError(f"{folder / APPROVED}: nobody's code is approved here; see `ecgr federate approve --help`")
    os.environ[PLACE] = str(log.folder)  # for the apps that it starts
    sys.argv = ["flower-supernode", "--superlink", site["superlink"], "--root-certificates", str(folder / "ca.crt")]
    sys.argv += ["--auth-supernode-private-key", str(folder / "node"), "--host", "127.0.0.1"]
    sys.argv += ["--node-config", f'partition-id={site["client"]} name="{site["name"]}"']
    sys.argv += ["--trusted-entities", str(folder / APPROVED), *more]
    flower._pull_and_store_message = watched(flower._pull_and_store_message, log)
    log.write("site starts", superlink=site["superlink"], approved=[*trusted])
    flower_supernode()


def watched(pull: Any, log: Audit) -> Any:
    """Flower's step that takes in a message, and with a run's first one its code; noted is what Flower made of that."""

    def pull_and_note(*, state: Any, get_fab: Any, **rest: Any) -> Any:
        fetched: list[tuple[int, Fab]] = []

        def fetch(fab_hash: str, run: int) -> Fab:
            fetched.append((run, get_fab(fab_hash, run)))
            return fetched[-1][1]

        try:
            return pull(state=state, get_fab=fetch, **rest)
        finally:
            for run, bundle in fetched:
                if state.get_run(run) is not None:
                    log.write("code", run=run, **hashes(bundle))
                else:  # and nothing of it is unpacked
                    log.write("refused", run=run, **hashes(bundle, config=False), reason=UNSIGNED)

    return pull_and_note
