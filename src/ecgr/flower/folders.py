"""The folders of a federation, and the commands that start its processes: on one machine or on several.

::

    HOME/server/     certificates, the app, its signed bundle, the operator's list `sites.toml`, sites' public `keys/`
    HOME/site-N/     who it is, the CA to trust, the bundle, who signed it; the site itself puts its key there
    HOME/signing/    the key that signs the bundle; not for the server
    HOME/README.md   what to do with them, where there are several machines

Flower's one port serves sites (``/v1/fleet/``) and also whoever may start runs, register keys or act as an app, and it
asks only the sites who they are. So the SuperLink listens on the loopback interface. For several machines nginx stands
in front, which passes ``/v1/fleet/`` alone, with a limit on what a request may weigh.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from string import Template
from typing import Annotated, Any

import tomli_w
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from pydantic import Field

from ecgr.component import component, rule
from ecgr.config.experiment import Experiment, load, presets
from ecgr.config.user_code import task_or_name
from ecgr.errors import ConfigError
from ecgr.files import write_atomically
from ecgr.flower.bundles import CONNECTION, SITE_FILE, sign_app
from ecgr.flower.fleet import TIMES_THE_MEDIAN, Listed, complete_list, read_list
from ecgr.flower.guard import Guard
from ecgr.flower.keys import (
    LOOPBACK,
    VALID_DAYS,
    fingerprint,
    make_certificates,
    private_folder,
    read_public_key,
)
from ecgr.flower.server import server_app
from ecgr.flower.site import client_app
from ecgr.runs.record import to_json
from ecgr.tasks.data import Site
from ecgr.wheel import WHEEL, pack_wheel, versions

SETTINGS = "ECGR_FEDERATION"
SUPERLINK_PORT = 8000
SUPERLINK = (  # with TLS, and letting in registered keys only
    "flower-superlink --host {bind} --port {port} --database {server}/superlink.db --ssl-ca-certfile {server}/ca.crt"
    " --ssl-certfile {server}/server.pem --ssl-keyfile {server}/server.key --enable-supernode-auth"
    " --disable-runtime-dependency-installation"
)
SUPERNODE = "ecgr federate site {site}"
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?").fullmatch
PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]+").fullmatch
FIREWALL = f"    # The SuperLink listens on {{bind}}: let nobody but the proxy reach port {SUPERLINK_PORT}.\n"


@dataclass(frozen=True, slots=True)
class Plan:
    """What every federation is made of.

    Attributes:
        experiment: what is run.
        sites: the operator's list, which is written to be edited.
        guard: what replies must be like.
        out: the run directory.
        local_data: whether each site holds its own samples; otherwise all hold the whole set and train their share.
        test: a file of arrays at the server to evaluate on, with ``local_data``; else sites evaluate on their own.
        server: a file of arrays with the server's own labelled samples, likewise.
        task: the Python file that the experiment comes from, if it does, which every local process runs for itself:
            ``task`` as on the command line, ``folder`` where that was given, ``settings`` that were changed.
    """

    experiment: Experiment
    sites: Sequence[Listed]
    guard: Guard
    out: Path
    local_data: bool = False
    test: Path | None = None
    server: Path | None = None
    task: Mapping[str, Any] | None = None


def write_folders(
    home: Path, plan: Plan, port: int = SUPERLINK_PORT, deployment: "Deployment | None" = None, key: Path | None = None
) -> None:
    """Write ``server/`` and a ``site-N/`` for every site, for their owner alone.

    Certificates and the signing key are kept if they are there already, and so is the list of a run that has begun.
    """
    server, package = home / "server", home / "server" / "app" / "ecgr_federation"
    sites = [home / f"site-{client}" for client in range(len(plan.sites))]
    for folder in (home, server, package.parent, package, server / "flwr", server / "keys", *sites):
        private_folder(folder)
    if not (server / "server.key").exists():
        make_certificates(server, [*dict.fromkeys([*([deployment.server] if deployment else []), *LOOPBACK])])
    files = {"out": plan.out, "test": plan.test, "server": plan.server}
    settings = {name: path and str(path.resolve()) for name, path in files.items()} | {"guard": asdict(plan.guard)}
    name, experiment = "experiment.toml", plan.experiment.to_toml().encode()
    if plan.task is not None:
        name, experiment = "task.json", to_json({**plan.task, "key": plan.experiment.key()})
    certificate = json.dumps(str(server.resolve() / "ca.crt"))
    content = {
        package.parent / "pyproject.toml": _fill("pyproject.toml"),
        package / "__init__.py": b"",
        package / "apps.py": _fill("apps.py", experiment=name, local_data=plan.local_data),
        package / name: experiment,
        server / "server.json": to_json(settings, indent=2),
        server / "flwr" / "config.toml": _fill("config.toml", name=CONNECTION, port=port, ca=certificate),
    }
    if not ((plan.out / "run.json").exists() and (server / "sites.toml").exists()):
        known = [{key: value for key, value in asdict(site).items() if value is not None} for site in plan.sites]
        listed = "".join(f"\n[[site]]\n{tomli_w.dumps(site)}" for site in known)
        content[server / "sites.toml"] = _fill("sites.toml", times=f"{TIMES_THE_MEDIAN:,}", sites=listed)
    for path, text in content.items():
        write_atomically(path, text)
    signer = home / "signing" / "signer" if key is None else key
    sign_app(server, signer, *sites)
    superlink = f"127.0.0.1:{port}" if deployment is None else deployment.sites_connect_to
    public, ca = signer.with_name(f"{signer.name}.pub").read_bytes(), (server / "ca.crt").read_bytes()
    listing = complete_list(read_list(server / "sites.toml"), len(sites))  # it may have been edited
    for client, (site, known_as) in enumerate(zip(sites, listing, strict=True)):
        who = tomli_w.dumps({"name": known_as.name, "client": client, "superlink": superlink}).encode()
        for file, text in {SITE_FILE: who, "ca.crt": ca, "signer.pub": public, name: experiment}.items():
            write_atomically(site / file, text)


def read_experiment(path: Path) -> Experiment:
    """The experiment in an app."""
    if path.suffix != ".json":
        return load(path)
    given = json.loads(path.read_bytes())
    with chdir(given["folder"]):  # what the file names by a relative path lies there
        experiment = load(task_or_name(given["task"]), given["settings"])
    if experiment.key() != given["key"]:
        raise ConfigError(f"{given['task']}: gives another task each time that it is run; seed what it draws at random")
    return experiment


def client_from(experiment: Path, *, local_data: bool = False) -> ClientApp:
    """The ClientApp of an app."""
    return client_app(partial(read_experiment, experiment), local_data=local_data)


def server_from(experiment: Path, *, local_data: bool = False) -> ServerApp:
    """The ServerApp of an app. What belongs to the server alone lies beside the file that ``$ECGR_FEDERATION`` names.

    Sites load this too, as part of the app, and have no such settings: so they are read when it is started.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        place = os.environ.get(SETTINGS)
        if place is None:
            raise ConfigError(f"${SETTINGS} is not set where the SuperLink runs; it names server/server.json")
        try:
            settings = json.loads(Path(place).read_bytes())
            given = {name: settings[name] for name in ("out", "test", "server")}
            given["guard"] = Guard(**settings["guard"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"${SETTINGS}: {place} cannot be used: {error}") from None
        server = Path(place).parent
        sites = read_list(server / "sites.toml")
        paths = {client: public_key(server, site.name) for client, site in enumerate(sites)}
        given["keys"] = {client: read_public_key(path) for client, path in paths.items() if path.exists()}
        made, log = partial(read_experiment, experiment), server / "audit"
        server_app(made, local_data=local_data, sites=sites, audit=log, **given)(grid, context)

    return app


def public_key(server: Path, site: str) -> Path:
    """Where the server has the public key of a site of this name."""
    return server / "keys" / f"{site}.pub"


PlainPath = Annotated[
    str,
    rule("must be an absolute path of letters, digits and . _ - +, which units and nginx read as it is", PLAIN_PATH),
]


@component
class Deployment:
    """Who listens where, on several machines.

    Attributes:
        server: the name or address under which sites reach the server.
        bind: where the SuperLink listens.
        port: the proxy's public port.
        body_limit: the largest request that passes the proxy, in megabytes.
        proxied: whether the proxy stands in front.
        environment: where Python and the packages are installed, on every machine.
        data: where a site's data lie.

    >>> Deployment("fl.example.org").sites_connect_to
    'fl.example.org:8443'
    """

    server: Annotated[str, rule("must be a host name or an address", HOST)]
    bind: Annotated[
        str, rule("must be a host name or an address", lambda bind: bind == "::" or HOST(bind.strip(":")))
    ] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=1, le=65535), rule("must not be the SuperLink's port", lambda port: port != SUPERLINK_PORT)
    ] = 8443
    body_limit: Annotated[int, Field(ge=1, le=4096)] = 64
    proxied: bool = True
    environment: PlainPath = "/opt/ecgr"
    data: PlainPath = "/srv/ecgr/data"

    def __post_init__(self) -> None:
        if not self.proxied and not is_loopback(self.bind):
            raise ConfigError(
                f"bind: {self.bind} without the proxy lets anybody who reaches the port start code at every site; bind"
                " 127.0.0.1, or leave the proxy in front"
            )

    @property
    def sites_connect_to(self) -> str:
        port = self.port if self.proxied else SUPERLINK_PORT
        return f"[{self.server}]:{port}" if ":" in self.server else f"{self.server}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False


def write_deployment(directory: Path, plan: Plan, deployment: Deployment, key: Path | None = None) -> Path:
    """Write the folders for several machines, with units and the proxy's configuration; the path of the guide."""
    if plan.test and not plan.local_data:
        raise ConfigError("test: only with local_data; otherwise the data set's own test samples are used")
    if plan.server and not plan.local_data:
        raise ConfigError(
            "server: only with local_data; otherwise data.server_samples takes some of the training samples"
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"out: {directory} is not empty; give another directory")
    server = directory.resolve() / "server"
    if not PLAIN_PATH(str(server)):
        raise ConfigError(f"out: {str(server.parent)!r}, expected a path of letters, digits and . _ - + alone")
    write_folders(directory, plan, deployment=deployment, key=key)
    own_file = isinstance(plan.experiment.source, Site)
    wheel, digest = pack_wheel(presets())
    values = {
        "home": server.parent,
        "server": server,
        "settings": SETTINGS,
        "environment": deployment.environment,
        "data": deployment.data,
        "task": " ECGR_TASK=/etc/ecgr/task.py" if own_file else "",
        "clients": len(plan.sites),
        "host": deployment.server,
        "days": VALID_DAYS,
        "keys": "\n".join(f"    {public_key(server, site.name)}" for site in plan.sites),
        "fingerprint": fingerprint(directory / "site-0" / "signer.pub"),
        "superlink": SUPERLINK.format(server=server, bind=deployment.bind, port=SUPERLINK_PORT),
        "supernode": SUPERNODE.format(site="/etc/ecgr"),
        "services": "ecgr-superlink ecgr-proxy" if deployment.proxied else "ecgr-superlink",
        "proxy": f"    # and: nginx -c {server}/nginx.conf\n" if deployment.proxied else "",
        "firewall": "" if is_loopback(deployment.bind) else FIREWALL.format(bind=deployment.bind),
    }
    services = ["ecgr-superlink.service", *(["ecgr-proxy.service"] if deployment.proxied else [])]
    places = [(server, str(server), services)]
    theirs = ["ecgr-supernode.service", *(["task.py"] if own_file else [])]
    places += [(directory / f"site-{client}", "/etc/ecgr", theirs) for client in range(len(plan.sites))]
    for folder, place, names in places:
        install = f"ecgr[flower] @ file://{place}/{WHEEL}#sha256={digest}\n"
        content = {name: _fill(name, **values) for name in names} | {"requirements.txt": install.encode()}
        for name, text in {**content, WHEEL: wheel, "constraints.txt": versions()}.items():
            (folder / name).write_bytes(text)
    if deployment.proxied:
        (server / "nginx.conf").write_bytes(nginx_config(server, deployment))
    guide = directory / "README.md"
    guide.write_bytes(_fill(guide.name, **values))
    return guide


def nginx_config(server: Path, deployment: Deployment, superlink_port: int = SUPERLINK_PORT) -> bytes:
    """A whole nginx configuration: sites' requests pass, nothing else does."""
    upstream = "127.0.0.1" if is_loopback(deployment.bind) else deployment.bind
    ports = {"port": deployment.port, "superlink_port": superlink_port}
    return _fill("nginx.conf", server=server, upstream=upstream, body_limit=deployment.body_limit, **ports)


def is_ours(name: str, content: bytes) -> bool:
    """Whether a file of a bundle is the code that this version writes, whatever the experiment."""
    names, places = ("experiment.toml", "task.json"), (True, False)
    apps = {_fill("apps.py", experiment=each, local_data=local) for each in names for local in places}
    return content in {b""} | apps if name.startswith("ecgr_federation/") else name == ".info/CONTENT"


def _fill(template: str, /, **values: object) -> bytes:
    """A file of ``templates/`` with its values put in; a value that it lacks is an error."""
    text = (files("ecgr.flower") / "templates" / f"{template}.template").read_text(encoding="utf-8")
    return Template(text).substitute(values).encode()
