"""What a federation of several machines needs, written to files: keys, the proxy's configuration, service units.

Flower's one port serves sites (``/v1/fleet/``) and also whoever may start runs, register keys or act as an app, and it
asks only the sites who they are. So the SuperLink listens on the loopback interface, and nginx stands in front, which
passes ``/v1/fleet/`` alone, with a limit on what a request may weigh.
"""

import re
from dataclasses import dataclass
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from shutil import copyfile
from string import Template

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError
from ecgr.flower.deploy.bundle import SETTINGS, write_app, write_settings
from ecgr.flower.deploy.keys import LOOPBACK, VALID_DAYS, make_certificates, make_node_key, read_public_key
from ecgr.flower.guard.guard import Guard
from ecgr.tasks.data import Site

SUPERLINK_PORT = 8000
PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]+")
PLAIN_PATH_TEXT = "give an absolute path of letters, digits and . _ - +, which units and nginx read as it is"


@dataclass(frozen=True, slots=True)
class Deployment:
    """Who listens where.

    Attributes:
        server: the name or address under which sites reach the server.
        clients: how many sites there are.
        bind: where the SuperLink listens.
        port: the proxy's public port.
        body_limit: the largest request that passes the proxy, in megabytes.
        proxied: whether the proxy is there.
        environment: where Python and the packages are installed, on every machine.
        data: where a site's data lie.
        local_data: whether each site holds its own samples; otherwise all hold the whole set and train their share.
        test: a file of arrays at the server to evaluate on, with ``local_data``; else sites evaluate on their own.

    >>> Deployment("fl.example.org", 3).sites_connect_to
    'fl.example.org:8443'
    """

    server: str
    clients: int
    bind: str = "127.0.0.1"
    port: int = 8443
    body_limit: int = 64
    proxied: bool = True
    environment: str = "/opt/ecgr"
    data: str = "/srv/ecgr/data"
    local_data: bool = False
    test: Path | None = None

    def __post_init__(self) -> None:
        problems = []
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?", self.server):
            problems.append(f"--server: {self.server!r} does not fit; give a host name or an address")
        if not 1 <= self.port <= 65535 or self.port == SUPERLINK_PORT:
            problems.append(f"--port: {self.port} does not fit; 1 to 65535, but not {SUPERLINK_PORT}, the SuperLink's")
        if not 1 <= self.body_limit <= 4096:
            problems.append(f"--body-limit: {self.body_limit} does not fit; 1 to 4096 megabytes")
        problems += [
            f"--{option}: {path!r} does not fit; {PLAIN_PATH_TEXT}"
            for option, path in (("environment", self.environment), ("data", self.data))
            if not PLAIN_PATH.fullmatch(path)
        ]
        if not _is_loopback(self.bind) and not self.proxied:
            problems.append(
                f"--bind: {self.bind} without the proxy would let anybody who reaches the port start code at every"
                " site; bind 127.0.0.1, or leave the proxy in front"
            )
        if self.test is not None and not self.local_data:
            problems.append("--test: goes with --local-data; otherwise the data set's own test samples are used")
        if problems:
            raise ConfigError(*problems)

    @property
    def sites_connect_to(self) -> str:
        """Where SuperNodes connect."""
        port = self.port if self.proxied else SUPERLINK_PORT
        return f"[{self.server}]:{port}" if ":" in self.server else f"{self.server}:{port}"


def write_deployment(directory: Path, experiment: Experiment, deployment: Deployment, guard: Guard) -> Path:
    """Write ``server/``, one ``site-N/`` for every site, and the guide, whose path is returned."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"--out: {directory} is not empty; give another directory")
    server = directory.resolve() / "server"
    if not PLAIN_PATH.fullmatch(str(server)):
        raise ConfigError(f"--out: {str(server.parent)!r} does not fit; {PLAIN_PATH_TEXT}")
    make_certificates(server, [deployment.server, *(host for host in LOOPBACK if host != deployment.server)])
    keys, own_file = {}, isinstance(experiment.source, Site)
    common = {"server": server, "settings": SETTINGS, "environment": deployment.environment, "data": deployment.data}
    for client in range(deployment.clients):
        site = directory / f"site-{client}"
        make_node_key(site)
        copyfile(server / "ca.crt", site / "ca.crt")
        task = " ECGR_TASK=/etc/ecgr/task.py" if own_file else ""
        command = supernode_command(client, deployment)
        (site / "ecgr-supernode.service").write_text(
            _fill("ecgr-supernode.service", client=client, task=task, command=command, **common)
        )
        if own_file:
            (site / "task.py").write_text(_fill("task.py.template", client=client, **common))
        (site / "experiment.toml").write_text(experiment.to_toml())
        copyfile(site / "node.pub", server / f"site-{client}.pub")
        keys[client] = read_public_key(site / "node.pub")
    write_app(server / "app", experiment, local_data=deployment.local_data)
    write_settings(server / "server.json", server / "run", guard, keys, deployment.test)
    (server / "flwr").mkdir()
    (server / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{SUPERLINK_PORT}"\n'
        f'root-certificates = "{server / "ca.crt"}"\n'
    )
    command = superlink_command(server, deployment)
    (server / "ecgr-superlink.service").write_text(_fill("ecgr-superlink.service", command=command, **common))
    if deployment.proxied:
        (server / "nginx.conf").write_text(nginx_config(server, deployment))
        (server / "ecgr-proxy.service").write_text(_fill("ecgr-proxy.service", **common))
    guide = directory / "README.md"
    guide.write_text(_guide(directory.resolve(), deployment))
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


def superlink_command(server: Path, deployment: Deployment) -> str:
    """How the SuperLink is started."""
    return (
        f"flower-superlink --host {deployment.bind} --port {SUPERLINK_PORT} --database {server}/superlink.db"
        f" --ssl-ca-certfile {server}/ca.crt --ssl-certfile {server}/server.pem --ssl-keyfile {server}/server.key"
        " --enable-supernode-auth --disable-runtime-dependency-installation"
    )


def supernode_command(client: int, deployment: Deployment, site: str = "/etc/ecgr") -> str:
    """How a site's SuperNode is started."""
    return (
        f"flower-supernode --superlink {deployment.sites_connect_to} --root-certificates {site}/ca.crt"
        f" --auth-supernode-private-key {site}/node --host 127.0.0.1 --node-config partition-id={client}"
    )


def _guide(directory: Path, deployment: Deployment) -> str:
    server = directory / "server"
    register = "\n".join(
        f"    flwr supernode register {server}/site-{client}.pub here" for client in range(deployment.clients)
    )
    proxy = f"    # and: nginx -c {server}/nginx.conf" if deployment.proxied else ""
    firewall = (
        ""
        if _is_loopback(deployment.bind)
        else f"\nThe SuperLink listens on {deployment.bind}: let nobody but the proxy reach port {SUPERLINK_PORT}.\n"
    )
    return _fill(
        "README.md",
        clients=deployment.clients,
        host=deployment.server,
        server=server,
        settings=SETTINGS,
        environment=deployment.environment,
        data=deployment.data,
        days=VALID_DAYS,
        services="ecgr-superlink ecgr-proxy" if deployment.proxied else "ecgr-superlink",
        superlink=superlink_command(server, deployment),
        supernode=supernode_command(0, deployment),
        proxy=proxy,
        register=register,
        firewall=firewall,
    )


def _fill(template: str, /, **values: object) -> str:
    """A file of ``templates/`` with its values put in; a value that it lacks is an error."""
    text = (files("ecgr.flower.deploy") / "templates" / template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
