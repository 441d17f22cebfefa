"""`ecgr federate`: a real Flower federation on this machine, or what several machines need for one."""

import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ecgr.cli.commands import command
from ecgr.cli.console import complain, out, print_json, scores, summary
from ecgr.cli.options import ExperimentName, Json, Out, Set, overrides
from ecgr.cli.progress import RoundProgress
from ecgr.errors import ConfigError
from ecgr.experiment.config import Experiment, load

if TYPE_CHECKING:
    from ecgr.flower.guard.guard import Guard

federate_app = typer.Typer(
    help="A real federation on Flower: on this machine, or the files for several.", no_args_is_help=True
)

Clients = Annotated[int, typer.Option("--clients", help="How many sites; each owns one client's share of the data.")]
MinClients = Annotated[int, typer.Option("--min-clients", help="Below so many usable replies a round is void.")]
Deadline = Annotated[float, typer.Option("--deadline", help="Seconds after which a reply is missing.")]
NormFactor = Annotated[
    float, typer.Option("--norm-factor", help="Updates longer than so many times the median are outliers.")
]
Outliers = Annotated[str, typer.Option("--outliers", help="What happens to outliers: reject or clip.")]


@command(federate_app, "local", "ecgr federate local quickstart --clients 3")
def local_command(
    experiment: ExperimentName = "quickstart",
    clients: Clients = 3,
    settings: Set = None,
    out_dir: Out = None,
    min_clients: MinClients = 2,
    deadline: Deadline = 600.0,
    norm_factor: NormFactor = 10.0,
    outliers: Outliers = "reject",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run, or start it.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep keys, logs and site states in DIR/.federation.")] = False,
    as_json: Json = False,
) -> None:
    """Run an experiment as a federation of processes on this machine, with TLS and a key for every site."""
    chosen = _chosen(experiment, clients, settings)
    from ecgr.flower.apps.server import refuse_simulator_only
    from ecgr.flower.deploy.local import federate  # says what to install where Flower is missing
    from ecgr.runs.runner import refuse_foreign
    from ecgr.simulation.prepare import prepare

    guard = _guard(min_clients, deadline, norm_factor, outliers)
    directory = out_dir or Path("runs") / f"{chosen.run.name or 'run'}-federated"
    refuse_foreign(directory, resume)
    refuse_simulator_only(chosen)
    prepare(chosen, chosen.source.load())  # what cannot be trained is said here, not in a server's log
    signal.signal(signal.SIGTERM, _interrupt)
    with RoundProgress(f"{clients} sites", chosen.federation.rounds) as progress:
        record = federate(chosen, directory, guard, progress, complain)
    if not keep:
        shutil.rmtree(directory / ".federation")
    last = record.rounds[-1]
    if as_json:
        print_json({"directory": str(directory), "key": record.key, "seed": record.seed, **summary(last)})
    else:
        text = f"{scores(last)} after {last['round']} rounds; {directory}"
        out.print(text, markup=False)


@command(federate_app, "init", "ecgr federate init quickstart --server fl.example.org --clients 3")
def init_command(
    server: Annotated[str, typer.Option("--server", help="The name under which sites reach the server.")],
    experiment: ExperimentName = "quickstart",
    clients: Clients = 3,
    settings: Set = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Where to write; must be new or empty.")] = Path("federation"),
    bind: Annotated[str, typer.Option("--bind", help="Where the SuperLink listens; loopback, behind the proxy.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", help="The proxy's public port.")] = 8443,
    body_limit: Annotated[int, typer.Option("--body-limit", help="Largest request of a site, in megabytes.")] = 64,
    proxied: Annotated[bool, typer.Option("--proxy/--no-proxy", help="Whether the proxy stands in front.")] = True,
    environment: Annotated[
        str, typer.Option("--environment", help="Where ecgr is installed, on every machine: a virtual environment.")
    ] = "/opt/ecgr",
    data: Annotated[str, typer.Option("--data", help="Where a site's data lie.")] = "/srv/ecgr/data",
    min_clients: MinClients = 2,
    deadline: Deadline = 3600.0,
    norm_factor: NormFactor = 10.0,
    outliers: Outliers = "reject",
) -> None:
    """Write the files and the exact commands for a federation of several machines."""
    chosen = _chosen(experiment, clients, settings)
    from ecgr.flower.apps.server import refuse_simulator_only
    from ecgr.flower.deploy.init import Deployment, write_deployment

    refuse_simulator_only(chosen)
    guard = _guard(min_clients, deadline, norm_factor, outliers)
    deployment = Deployment(server, clients, bind, port, body_limit, proxied, environment, data)
    guide = write_deployment(out_dir, chosen, deployment, guard)
    out.print(guide.read_text(), markup=False, soft_wrap=True)
    out.print(f"All of this is in {out_dir}", markup=False, soft_wrap=True)


def _chosen(experiment: str, clients: int, settings: list[str] | None) -> Experiment:
    changes = overrides(settings)
    if changes.get("partition.clients", clients) != clients:
        raise ConfigError(f"--clients: {clients} sites, but partition.clients is set to {changes['partition.clients']}")
    return load(experiment, {**changes, "partition.clients": clients})


def _guard(min_clients: int, deadline: float, norm_factor: float, outliers: str) -> "Guard":
    from pydantic import ValidationError

    from ecgr.flower.guard.guard import Guard

    try:
        return Guard(min_clients=min_clients, deadline=deadline, norm_factor=norm_factor, outliers=outliers)  # type: ignore[arg-type]
    except ValidationError as error:
        raise ConfigError(
            *(
                f"--{str(e['loc'][0]).replace('_', '-')}: {e['input']!r} does not fit: {e['msg']}"
                for e in error.errors()
            )
        ) from None


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
