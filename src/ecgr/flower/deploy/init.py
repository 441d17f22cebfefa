"""What a federation of several machines needs, written to files: keys, the proxy's configuration, service units.

Flower's one port serves sites (``/v1/fleet/``) and also whoever may start runs, register keys or act as an app, and it
asks only the sites who they are. So the SuperLink listens on the loopback interface, and nginx stands in front, which
passes ``/v1/fleet/`` alone, with a limit on what a request may weigh.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from shutil import copyfile

from ecgr.errors import ConfigError
from ecgr.experiment.config import Experiment
from ecgr.flower.deploy.bundle import SETTINGS, write_app, write_settings
from ecgr.flower.deploy.keys import LOOPBACK, make_certificates, make_node_key, read_public_key
from ecgr.flower.guard.guard import Guard

SUPERLINK_PORT = 8000


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

    >>> Deployment("fl.example.org", 3).sites_connect_to
    'fl.example.org:8443'
    """

    server: str
    clients: int
    bind: str = "127.0.0.1"
    port: int = 8443
    body_limit: int = 64
    proxied: bool = True

    def __post_init__(self) -> None:
        problems = []
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?", self.server):
            problems.append(f"--server: {self.server!r} does not fit; give a host name or an address")
        if not 1 <= self.port <= 65535 or self.port == SUPERLINK_PORT:
            problems.append(f"--port: {self.port} does not fit; 1 to 65535, but not {SUPERLINK_PORT}, the SuperLink's")
        if not 1 <= self.body_limit <= 4096:
            problems.append(f"--body-limit: {self.body_limit} does not fit; 1 to 4096 megabytes")
        if not _is_loopback(self.bind) and not self.proxied:
            problems.append(
                f"--bind: {self.bind} without the proxy would let anybody who reaches the port start code at every"
                " site; bind 127.0.0.1, or leave the proxy in front"
            )
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
    make_certificates(server, [deployment.server, *(host for host in LOOPBACK if host != deployment.server)])
    keys = {}
    for client in range(deployment.clients):
        site = directory / f"site-{client}"
        make_node_key(site)
        copyfile(server / "ca.crt", site / "ca.crt")
        (site / "ecgr-supernode.service").write_text(_supernode_unit(client, deployment))
        copyfile(site / "node.pub", server / f"site-{client}.pub")
        keys[client] = read_public_key(site / "node.pub")
    write_app(server / "app", experiment)
    write_settings(server / "server.json", server / "run", guard, keys)
    (server / "flwr").mkdir()
    (server / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{SUPERLINK_PORT}"\n'
        f'root-certificates = "{server / "ca.crt"}"\n'
    )
    (server / "ecgr-superlink.service").write_text(_superlink_unit(server, deployment))
    if deployment.proxied:
        (server / "nginx.conf").write_text(nginx_config(server, deployment))
        (server / "ecgr-proxy.service").write_text(_proxy_unit(server))
    guide = directory / "README.md"
    guide.write_text(_guide(directory.resolve(), deployment))
    return guide


def nginx_config(server: Path, deployment: Deployment, superlink_port: int = SUPERLINK_PORT) -> str:
    """A whole nginx configuration: sites' requests pass, nothing else does."""
    upstream = "127.0.0.1" if _is_loopback(deployment.bind) else deployment.bind
    return f"""\
# Passes what sites need and nothing else. Start with: nginx -c {server}/nginx.conf
pid {server}/nginx.pid;
error_log {server}/nginx.log warn;
worker_processes 1;
events {{ worker_connections 512; }}

http {{
    access_log off;
    server_tokens off;
    client_body_temp_path {server}/nginx-tmp;
    proxy_temp_path {server}/nginx-tmp;
    fastcgi_temp_path {server}/nginx-tmp;
    uwsgi_temp_path {server}/nginx-tmp;
    scgi_temp_path {server}/nginx-tmp;

    server {{
        listen {deployment.port} ssl;
        ssl_certificate {server}/server.pem;
        ssl_certificate_key {server}/server.key;
        ssl_protocols TLSv1.2 TLSv1.3;

        client_max_body_size {deployment.body_limit}m;
        client_header_timeout 30s;
        client_body_timeout 60s;
        large_client_header_buffers 4 16k;

        location / {{ return 403; }}

        # The path is repeated after the address on purpose: nginx then passes on the path that it matched, with dots
        # and escapes resolved, and not what was sent.
        location /v1/fleet/ {{
            proxy_pass https://{upstream}:{superlink_port}/v1/fleet/;
            proxy_http_version 1.1;
            proxy_request_buffering on;
            proxy_read_timeout 120s;
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate {server}/ca.crt;
            proxy_ssl_name localhost;
        }}
    }}
}}
"""


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


_QUIET = "Environment=FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1"


def _unit(description: str, lines: str, command: str) -> str:
    return f"""\
[Unit]
Description={description}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
{lines}
ExecStart=/bin/sh -c 'exec {command}'
Restart=always
RestartSec=10
KillMode=control-group

[Install]
WantedBy=multi-user.target
"""


def _superlink_unit(server: Path, deployment: Deployment) -> str:
    lines = f"{_QUIET}\nEnvironment=FLWR_HOME={server}/flwr {SETTINGS}={server}/server.json"
    return _unit("Flower SuperLink of an ecgr federation", lines, superlink_command(server, deployment))


def _proxy_unit(server: Path) -> str:
    command = f'nginx -c {server}/nginx.conf -g "daemon off;"'
    return _unit("Reverse proxy of an ecgr federation: /v1/fleet/ only", "Type=exec", command)


def _supernode_unit(client: int, deployment: Deployment) -> str:
    lines = f"{_QUIET}\nEnvironment=FLWR_HOME=/var/lib/ecgr/flwr ECGR_STATE=/var/lib/ecgr/state"
    return _unit(
        f"Flower SuperNode of site {client}", f"{lines}\nStateDirectory=ecgr", supernode_command(client, deployment)
    )


def _guide(directory: Path, deployment: Deployment) -> str:
    server = directory / "server"
    register = "\n".join(
        f"    flwr supernode register {server}/site-{client}.pub here" for client in range(deployment.clients)
    )
    proxy = (
        f"    cp {server}/ecgr-proxy.service /etc/systemd/system/ && systemctl enable --now ecgr-proxy"
        f"     # or: nginx -c {server}/nginx.conf\n"
        if deployment.proxied
        else ""
    )
    firewall = (
        ""
        if _is_loopback(deployment.bind)
        else f"\nThe SuperLink listens on {deployment.bind}: let nobody but the proxy reach port {SUPERLINK_PORT}.\n"
    )
    return f"""\
# A federation of {deployment.clients} sites around {deployment.server}

Python 3.11 with `pip install 'ecgr[flower]'` is needed everywhere, the same versions, on the PATH of the services;
nginx on the server. Whoever controls the server can run code at every site: sites must trust it.

1. Move each `site-N/` to its site as `/etc/ecgr/` over a safe channel, and delete it here: `node` is the site's secret.

2. On the server:

    cp {server}/ecgr-superlink.service /etc/systemd/system/ && systemctl enable --now ecgr-superlink
    # or: FLWR_HOME={server}/flwr {SETTINGS}={server}/server.json {superlink_command(server, deployment)}
{proxy}    export FLWR_HOME={server}/flwr
{register}
{firewall}
3. At every site N:

    cp /etc/ecgr/ecgr-supernode.service /etc/systemd/system/ && systemctl enable --now ecgr-supernode
    # or: {supernode_command(0, deployment)}     # partition-id=N

4. On the server, start the run; after a failure the same command goes on from the last round:

    FLWR_HOME={server}/flwr flwr run {server}/app here

The record is written to `{server}/run`: `ecgr report {server}/run` reads it.
"""


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
