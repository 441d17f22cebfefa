"""`ecgr federate`: a real Flower federation on this machine, or what several machines need for one."""

import shutil
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ecgr.cli.commands import command
from ecgr.cli.console import complain, print_json, say, scores
from ecgr.cli.options import ExperimentName, Json, Out, Set, overrides
from ecgr.cli.progress import RoundProgress
from ecgr.config.experiment import Experiment, load
from ecgr.errors import ConfigError

if TYPE_CHECKING:
    from ecgr.flower.guard.guard import Guard

federate_app = typer.Typer(
    help="A real federation on Flower: on this machine, or the files for several.", no_args_is_help=True
)

DEFAULT_CLIENTS = 3
Clients = Annotated[int | None, typer.Option("--clients", help="How many sites; 3 by default.")]
MinClients = Annotated[int, typer.Option("--min-clients", help="Below so many usable replies a round is void.")]
Deadline = Annotated[float, typer.Option("--deadline", help="Seconds after which a reply is missing.")]
NormFactor = Annotated[
    float, typer.Option("--norm-factor", help="Updates longer than so many times the median are outliers.")
]
Outliers = Annotated[str, typer.Option("--outliers", help="What happens to outliers: reject or clip.")]


@command(
    federate_app,
    "local",
    "ecgr federate local quickstart --clients 3",
    "ecgr federate local hospitals/heart_disease --sites hospitals/",
)
def local_command(
    experiment: ExperimentName = "quickstart",
    clients: Clients = None,
    sites: Annotated[
        Path | None,
        typer.Option("--sites", help="A folder with one folder a site: its data and nobody else's."),
    ] = None,
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
    folders = [] if sites is None else _folders(sites, clients)
    chosen = _choose(experiment, len(folders) or (DEFAULT_CLIENTS if clients is None else clients), settings)
    from ecgr.flower.deploy.check import check_site, places
    from ecgr.flower.deploy.layout import data_places
    from ecgr.flower.deploy.local import federate  # says what to install where Flower is missing
    from ecgr.runs.place import refuse_foreign
    from ecgr.simulation.prepare import prepare

    guard = _guard(min_clients, deadline, norm_factor, outliers)
    directory = out_dir or Path("runs") / f"{chosen.run.name or 'run'}-federated"
    refuse_foreign(directory, resume)
    # What cannot be trained is said here, not in a server's or a site's log.
    for client, folder in enumerate(folders):
        with places(data_places(folder)):
            check_site(chosen, client)
    if not folders:
        prepare(chosen, chosen.source.load())
    signal.signal(signal.SIGTERM, _interrupt)
    with RoundProgress(f"{chosen.partition.clients} sites", chosen.federation.rounds) as progress:
        record = federate(chosen, directory, guard, progress, complain, folders)
    if not keep:
        shutil.rmtree(directory / ".federation")
    last = record.rounds[-1]
    if as_json:
        names = ("round", "accuracy", "metrics", "loss", "train_loss", "worst_client")
        summary = {name: last[name] for name in names if name in last}
        print_json({"directory": str(directory), "key": record.key, "seed": record.seed, **summary})
    else:
        text = f"{scores(last)} after {last['round']} rounds; {directory}"
        say(text)


def _folders(sites: Path, clients: int | None) -> list[Path]:
    """The sites' folders, in the order of their names."""
    found = sorted(path for path in sites.iterdir() if path.is_dir()) if sites.is_dir() else []
    if len(found) < 2:
        raise ConfigError(f"--sites: {sites} has {len(found)} folders; give a folder with one for every site")
    if clients not in (None, len(found)):
        raise ConfigError(f"--clients: {clients}, but {sites} has {len(found)} folders; leave one of the two out")
    return found


@command(
    federate_app, "check", "ECGR_DATA=/srv/ecgr/data ecgr federate check hospitals/heart_disease --clients 4 --client 2"
)
def check_command(
    experiment: ExperimentName,
    client: Annotated[int, typer.Option("--client", help="Which site this is, from 0.")] = 0,
    clients: Clients = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """At a site: load what it holds, train one step, and say what was found. Nothing is sent."""
    chosen = load(experiment, {**overrides(settings), **({} if clients is None else {"partition.clients": clients})})
    from ecgr.flower.deploy.check import check_site

    found = check_site(chosen, client)
    if as_json:
        print_json(asdict(found))
        return
    shape = ", ".join(f"{size} {name}" for name, size in found.shape.items())
    say(f"site {client}: {found.train:,} training and {found.test:,} test samples ({shape})")
    say(f"trained by {found.loss}, judged by {', '.join(found.metrics)}")
    say(
        f"one step of a model with {found.parameters:,} parameters: loss {found.step_loss:.4f}, it moved by"
        f" {found.step_norm:.3g}; nothing was sent"
    )


@command(federate_app, "init", "ecgr federate init quickstart --server fl.example.org --clients 3")
def init_command(
    server: Annotated[str, typer.Option("--server", help="The name under which sites reach the server.")],
    experiment: ExperimentName = "quickstart",
    clients: Clients = None,
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
    local_data: Annotated[
        bool, typer.Option("--local-data", help="Each site holds its own samples; otherwise all hold the whole set.")
    ] = False,
    test: Annotated[
        Path | None, typer.Option("--test", help="Arrays at the server to evaluate on; else sites evaluate on theirs.")
    ] = None,
    min_clients: MinClients = 2,
    deadline: Deadline = 3600.0,
    norm_factor: NormFactor = 10.0,
    outliers: Outliers = "reject",
) -> None:
    """Write the files and the exact commands for a federation of several machines."""
    count = DEFAULT_CLIENTS if clients is None else clients
    chosen = _choose(experiment, count, settings)
    from ecgr.flower.deploy.init import Deployment, write_deployment

    guard = _guard(min_clients, deadline, norm_factor, outliers)
    deployment = Deployment(server, count, bind, port, body_limit, proxied, environment, data, local_data, test)
    guide = write_deployment(out_dir, chosen, deployment, guard)
    say(guide.read_text())
    say(f"All of this is in {out_dir}")


def _choose(experiment: str, clients: int, settings: list[str] | None) -> Experiment:
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
