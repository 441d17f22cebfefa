"""Where everything of a federation on this machine lies, and how its processes are started.

::

    DIR/.federation/
      app/            what is submitted: the experiment
      server.json     what the ServerApp needs besides
      server/         certificates, the SuperLink's database, its FLWR_HOME
      site-N/         the site's key, its FLWR_HOME, its client's state
      logs/           one file a process
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError, EnvironmentFault, install_command
from ecgr.flower.deploy.bundle import SETTINGS, write_app, write_settings
from ecgr.flower.deploy.keys import make_certificates, make_node_key, read_public_key
from ecgr.flower.deploy.processes import Service, free_ports
from ecgr.flower.guard.guard import Guard

CONNECTION = "local"
TASK_FILE = "task.py"
"""What loads a site's samples, in its folder of data."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The files below ``home`` and the ports of one federation."""

    home: Path
    port: int
    node_ports: tuple[int, ...]
    data: tuple[Path, ...] = ()
    """The sites' own folders of data, where they have their own."""

    @classmethod
    def prepare(cls, experiment: Experiment, out: Path, guard: Guard, data: Sequence[Path] = ()) -> "Layout":
        """Choose ports and write all files; keys and client states that are there already are kept."""
        if experiment.partition.clients is None:
            raise ConfigError("partition.clients: missing; a federation is told how many sites it has")
        clients = range(experiment.partition.clients)
        port, *node_ports = free_ports(1 + len(clients))
        layout = cls((out / ".federation").resolve(), port, tuple(node_ports), tuple(data))
        if not (layout.server / "server.key").exists():
            make_certificates(layout.server)
        for client in clients:
            if not (layout.site(client) / "node").exists():
                make_node_key(layout.site(client))
        for stale in layout.server.glob("superlink.db*"):
            stale.unlink()  # of an interrupted run: its nodes and messages are nobody's now
        write_app(layout.home / "app", experiment, local_data=bool(data))
        keys = {client: read_public_key(layout.site(client) / "node.pub") for client in clients}
        write_settings(layout.home / "server.json", out, guard, keys)
        flower_home = layout.server / "flwr"
        flower_home.mkdir(exist_ok=True)
        (flower_home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{port}"\n'
            f"root-certificates = {json.dumps(str(layout.ca))}\n"
        )
        return layout

    @property
    def server(self) -> Path:
        """What belongs to the server."""
        return self.home / "server"

    @property
    def ca(self) -> Path:
        """The certificate that sites trust."""
        return self.server / "ca.crt"

    @property
    def logs(self) -> Path:
        """What processes say."""
        return self.home / "logs"

    def site(self, client: int) -> Path:
        """What belongs to a site."""
        return self.home / f"site-{client}"

    def server_environment(self) -> dict[str, str]:
        """The environment of the SuperLink, and of the ServerApps that it starts."""
        own = environment(self.server, **{SETTINGS: str(self.home / "server.json")})
        # Where sites have data of their own, the server must do without.
        return {name: value for name, value in own.items() if not (self.data and name in {"ECGR_DATA", "ECGR_TASK"})}

    def superlink(self) -> Service:
        """The SuperLink: on loopback, with TLS, and letting in registered keys only."""
        command = [
            str(tool("flower-superlink")),
            *("--host", "127.0.0.1", "--port", str(self.port), "--database", str(self.server / "superlink.db")),
            *("--ssl-ca-certfile", str(self.ca), "--ssl-certfile", str(self.server / "server.pem")),
            *("--ssl-keyfile", str(self.server / "server.key"), "--enable-supernode-auth"),
            "--disable-runtime-dependency-installation",
        ]
        return Service("the SuperLink", command, self.server_environment(), self.logs / "superlink.log")

    def supernode(self, client: int) -> Service:
        """A site's SuperNode, which knows its own key and the CA."""
        command = [
            str(tool("flower-supernode")),
            *("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", str(self.ca)),
            *("--auth-supernode-private-key", str(self.site(client) / "node"), "--host", "127.0.0.1"),
            *("--port", str(self.node_ports[client]), "--node-config", f"partition-id={client}"),
        ]
        data = data_places(self.data[client]) if self.data else {}
        places = {"ECGR_STATE": str(self.site(client) / "state"), **data}
        own = environment(self.site(client), **places)
        return Service(f"the SuperNode of client {client}", command, own, self.logs / f"site-{client}.log")


def data_places(folder: Path) -> dict[str, str]:
    """Where a site that has its own data in ``folder`` finds them."""
    task = folder.resolve() / TASK_FILE
    return {"ECGR_DATA": str(folder.resolve()), **({"ECGR_TASK": str(task)} if task.is_file() else {})}


def environment(home: Path, **extra: str) -> dict[str, str]:
    """What Flower's processes get: a home of their own, and nothing that talks to anybody else."""
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "OMP_NUM_THREADS": "1",
        **extra,
    }


def tool(name: str) -> Path:
    """One of Flower's commands, from the environment that this Python runs in."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise EnvironmentFault(f"{name} is not beside {sys.executable}; there: {install_command('flower')}")
    return path
