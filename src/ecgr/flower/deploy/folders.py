"""The folders of a federation, and the commands that start its processes: on one machine or on several.

::

    HOME/server/     certificates, the app, the operator's list `sites.toml`, public keys of sites in `keys/`
    HOME/site-N/     the CA to trust, the experiment; the site itself puts its key there
    HOME/README.md   what to do with them, where there are several machines

Flower's one port serves sites (``/v1/fleet/``) and also whoever may start runs, register keys or act as an app, and it
asks only the sites who they are. So the SuperLink listens on the loopback interface. For several machines nginx stands
in front, which passes ``/v1/fleet/`` alone, with a limit on what a request may weigh.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from shutil import copyfile
from string import Template
from typing import Any

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from ecgr.config.experiment import Experiment, load
from ecgr.config.user_code import task_or_name
from ecgr.errors import ConfigError
from ecgr.files import write_atomically
from ecgr.flower.apps.enrolment import Listed, read_list, write_list
from ecgr.flower.apps.server import server_app
from ecgr.flower.apps.site import client_app
from ecgr.flower.deploy.keys import LOOPBACK, VALID_DAYS, make_certificates, private_folder, read_public_key
from ecgr.flower.guard import Guard
from ecgr.runs.record import to_json
from ecgr.tasks.data import Site

SETTINGS = "ECGR_FEDERATION"
CONNECTION = "here"
SUPERLINK_PORT = 8000
SUPERLINK = (  # with TLS, and letting in registered keys only
    "flower-superlink --host {bind} --port {port} --database {server}/superlink.db --ssl-ca-certfile {server}/ca.crt"
    " --ssl-certfile {server}/server.pem --ssl-keyfile {server}/server.key --enable-supernode-auth"
    " --disable-runtime-dependency-installation"
)
SUPERNODE = (
    "flower-supernode --superlink {superlink} --root-certificates {site}/ca.crt"
    " --auth-supernode-private-key {site}/node --host 127.0.0.1 --node-config partition-id={client}"
)
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")
PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]+")
PLAIN_PATH_TEXT = "give an absolute path of letters, digits and . _ - +, which units and nginx read as it is"

FIREWALL = f"\nThe SuperLink listens on {{bind}}: let nobody but the proxy reach port {SUPERLINK_PORT}.\n"


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
        task: the Python file that the experiment comes from, if it does, which every local process runs for itself:
            ``task`` as on the command line, ``folder`` where that was given, ``settings`` that were changed.
    """

    experiment: Experiment
    sites: Sequence[Listed]
    guard: Guard
    out: Path
    local_data: bool = False
    test: Path | None = None
    task: Mapping[str, Any] | None = None


def write_folders(home: Path, plan: Plan, hosts: Sequence[str] = LOOPBACK, port: int = SUPERLINK_PORT) -> None:
    """Write ``server/`` and a ``site-N/`` for every site, for their owner alone.

    Certificates that are there already are kept, and so is the list of a run that has begun.
    """
    server = home / "server"
    for folder in (home, server, *(server / name for name in ("app", "app/ecgr_federation", "flwr", "keys"))):
        private_folder(folder)
    if not (server / "server.key").exists():
        make_certificates(server, hosts)
    if not ((plan.out / "run.json").exists() and (server / "sites.toml").exists()):
        write_list(server / "sites.toml", plan.sites)
    _write_app(server / "app", plan)
    settings = {"out": str(plan.out.resolve()), "guard": asdict(plan.guard)}
    settings |= {} if plan.test is None else {"test": str(plan.test.resolve())}
    write_atomically(server / "server.json", to_json(settings, indent=2))
    (server / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{port}"\n'
        f"root-certificates = {json.dumps(str(server.resolve() / 'ca.crt'))}\n"
    )
    for client in range(len(plan.sites)):
        site = home / f"site-{client}"
        private_folder(site)
        copyfile(server / "ca.crt", site / "ca.crt")
        if plan.task is None:
            (site / "experiment.toml").write_text(plan.experiment.to_toml())


def _write_app(directory: Path, plan: Plan) -> None:
    """The app for ``flwr run``: the experiment, and two lines that make both apps from it."""
    package = directory / "ecgr_federation"
    (directory / "pyproject.toml").write_text(_fill("pyproject.toml"))
    (package / "__init__.py").write_text('"""An ecgr experiment as a Flower app."""\n')
    name = "experiment.toml" if plan.task is None else "task.json"
    (package / "apps.py").write_text(_fill("apps.py", experiment=name, local_data=plan.local_data))
    if plan.task is None:
        (package / name).write_text(plan.experiment.to_toml())
    else:
        (package / name).write_bytes(to_json({**plan.task, "key": plan.experiment.key()}))


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

    Sites load this too, as part of the app, and have no such settings: there it is an app that would not start.
    """
    place = os.environ.get(SETTINGS)
    if place is None:
        app = ServerApp()

        @app.main()
        def main(grid: object, context: object) -> None:
            raise ConfigError(f"${SETTINGS} is not set where the SuperLink runs; it names server/server.json")

        return app
    try:
        settings = json.loads(Path(place).read_bytes())
        out, guard, test = settings["out"], Guard(**settings["guard"]), settings.get("test")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"${SETTINGS}: {place} cannot be used: {error}") from None
    server = Path(place).parent
    sites = read_list(server / "sites.toml")
    paths = {client: public_key(server, site) for client, site in enumerate(sites)}
    keys = {client: read_public_key(path) for client, path in paths.items() if path.exists()}
    made = partial(read_experiment, experiment)
    return server_app(made, out, guard=guard, keys=keys, local_data=local_data, test=test, sites=sites)


def public_key(server: Path, site: Listed) -> Path:
    """Where the server has a site's public key."""
    return server / "keys" / f"{site.name}.pub"


@dataclass(frozen=True, slots=True)
class Deployment:
    """Who listens where, on several machines.

    Attributes:
        server: the name or address under which sites reach the server.
        bind: where the SuperLink listens.
        port: the proxy's public port.
        body_limit: the largest request that passes the proxy, in megabytes.
        proxied: whether the proxy is there.
        environment: where Python and the packages are installed, on every machine.
        data: where a site's data lie.

    >>> Deployment("fl.example.org").sites_connect_to
    'fl.example.org:8443'
    """

    server: str
    bind: str = "127.0.0.1"
    port: int = 8443
    body_limit: int = 64
    proxied: bool = True
    environment: str = "/opt/ecgr"
    data: str = "/srv/ecgr/data"

    def __post_init__(self) -> None:
        rules = {
            "server": (HOST.fullmatch(self.server), "expected a host name or an address"),
            "port": (
                1 <= self.port <= 65535 and self.port != SUPERLINK_PORT,
                f"expected 1 to 65535, but not {SUPERLINK_PORT}, the SuperLink's",
            ),
            "body_limit": (1 <= self.body_limit <= 4096, "expected 1 to 4096 megabytes"),
            "environment": (PLAIN_PATH.fullmatch(self.environment), PLAIN_PATH_TEXT),
            "data": (PLAIN_PATH.fullmatch(self.data), PLAIN_PATH_TEXT),
            "bind": (
                self.proxied or _is_loopback(self.bind),
                "without the proxy anybody who reaches the port could start code at every site; bind 127.0.0.1, or"
                " leave the proxy in front",
            ),
        }
        problems = [
            f"{name}: {rule}, got {getattr(self, name)!r}" for name, (holds, rule) in rules.items() if not holds
        ]
        if problems:
            raise ConfigError(*problems)

    @property
    def sites_connect_to(self) -> str:
        """Where SuperNodes connect."""
        port = self.port if self.proxied else SUPERLINK_PORT
        return f"[{self.server}]:{port}" if ":" in self.server else f"{self.server}:{port}"


def write_deployment(directory: Path, plan: Plan, deployment: Deployment) -> Path:
    """Write the folders for several machines, with units and the proxy's configuration; the path of the guide."""
    if plan.test is not None and not plan.local_data:
        raise ConfigError("--test: only with --local-data; otherwise the data set's own test samples are used")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"out: {directory} is not empty; give another directory")
    server = directory.resolve() / "server"
    if not PLAIN_PATH.fullmatch(str(server)):
        raise ConfigError(f"out: {str(server.parent)!r} cannot be used; {PLAIN_PATH_TEXT}")
    write_folders(directory, plan, [deployment.server, *(host for host in LOOPBACK if host != deployment.server)])
    own_file, proxied = isinstance(plan.experiment.source, Site), deployment.proxied
    supernode = partial(SUPERNODE.format, site="/etc/ecgr", superlink=deployment.sites_connect_to)
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
        "keys": "\n".join(f"    {public_key(server, site)}" for site in plan.sites),
        "services": "ecgr-superlink ecgr-proxy" if proxied else "ecgr-superlink",
        "superlink": SUPERLINK.format(server=server, bind=deployment.bind, port=SUPERLINK_PORT),
        "supernode": supernode(client="N"),
        "proxy": f"    # and: nginx -c {server}/nginx.conf" if proxied else "",
        "firewall": "" if _is_loopback(deployment.bind) else FIREWALL.format(bind=deployment.bind),
    }
    guide = directory / "README.md"
    for path in (guide, server / "ecgr-superlink.service", *([server / "ecgr-proxy.service"] if proxied else [])):
        path.write_text(_fill(path.name, **values))
    if proxied:
        (server / "nginx.conf").write_text(nginx_config(server, deployment))
    for client in range(len(plan.sites)):
        own = {**values, "client": client, "supernode": supernode(client=client)}
        for name in ("ecgr-supernode.service", *(["task.py"] if own_file else [])):
            (directory / f"site-{client}" / name).write_text(_fill(name, **own))
    return guide


def nginx_config(server: Path, deployment: Deployment, superlink_port: int = SUPERLINK_PORT) -> str:
    """A whole nginx configuration: sites' requests pass, nothing else does."""
    return _fill(
        "nginx.conf",
        server=server,
        upstream="127.0.0.1" if _is_loopback(deployment.bind) else deployment.bind,
        port=deployment.port,
        superlink_port=superlink_port,
        body_limit=deployment.body_limit,
    )


def _fill(template: str, /, **values: object) -> str:
    """A file of ``templates/`` with its values put in; a value that it lacks is an error."""
    text = (files("ecgr.flower.deploy") / "templates" / f"{template}.template").read_text(encoding="utf-8")
    return Template(text).substitute(values)


def _is_loopback(address: str) -> bool:
    with suppress(ValueError):
        return address == "localhost" or ip_address(address).is_loopback
    return False
