"""The Flower app that `flwr run` submits: the experiment file and two lines that make both apps from it.

What belongs to the server alone (the run directory, the guard, the sites' public keys) is not in the app, which goes
to every site: the ServerApp finds it in a file that ``$ECGR_FEDERATION`` names.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from string import Template

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError
from ecgr.files import write_atomically
from ecgr.flower.apps.server import server_app
from ecgr.flower.apps.site import client_app
from ecgr.flower.guard.guard import Guard
from ecgr.runs.record import to_json

SETTINGS = "ECGR_FEDERATION"

PYPROJECT = """\
[project]
name = "ecgr-federation"
version = "1.0.0"
description = "An ecgr experiment as a Flower app"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "ecgr"

[tool.flwr.app.components]
serverapp = "ecgr_federation.apps:server"
clientapp = "ecgr_federation.apps:client"

[tool.flwr.app.config]
"""

APPS = '''\
"""Both apps of the experiment beside this file."""

from pathlib import Path

from ecgr.flower.deploy.bundle import client_from, server_from

EXPERIMENT = Path(__file__).with_name("experiment.toml")
client = client_from(EXPERIMENT, local_data=$local_data)
server = server_from(EXPERIMENT, local_data=$local_data)
'''


def write_app(directory: Path, experiment: Experiment, *, local_data: bool = False) -> None:
    """Write the app for ``flwr run``; with ``local_data`` every site has its own samples."""
    package = directory / "ecgr_federation"
    package.mkdir(parents=True, exist_ok=True)
    (directory / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").write_text('"""An ecgr experiment as a Flower app."""\n')
    (package / "apps.py").write_text(Template(APPS).substitute(local_data=local_data))
    (package / "experiment.toml").write_text(experiment.to_toml())


def write_settings(path: Path, out: Path, guard: Guard, keys: Mapping[int, bytes], test: Path | None = None) -> None:
    """Write what the ServerApp needs besides the app; public keys of sites, samples to test on."""
    public = {str(client): key.decode() for client, key in keys.items()}
    own = {} if test is None else {"test": str(test.resolve())}
    content = {"out": str(out.resolve()), "guard": asdict(guard), "keys": public, **own}
    write_atomically(path, to_json(content, indent=2))


def client_from(experiment: Path, *, local_data: bool = False) -> ClientApp:
    """The ClientApp of an experiment file."""
    return client_app(experiment, local_data=local_data)


def server_from(experiment: Path, *, local_data: bool = False) -> ServerApp:
    """The ServerApp of an experiment file, with the settings that ``$ECGR_FEDERATION`` names.

    Sites load this too, as part of the app, and have no such settings: there it is an app that would not start.
    """
    place = os.environ.get(SETTINGS)
    if place is None:
        return _without_settings()
    try:
        settings = json.loads(Path(place).read_bytes())
        keys = {int(client): key.encode() for client, key in settings["keys"].items()}
        guard, test = Guard(**settings["guard"]), settings.get("test")
        return server_app(experiment, settings["out"], guard=guard, keys=keys, local_data=local_data, test=test)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"${SETTINGS}: {place} cannot be used: {error}") from None


def _without_settings() -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: object, context: object) -> None:
        raise ConfigError(f"${SETTINGS} is not set where the SuperLink runs; it names the file that init wrote")

    return app
