"""`ecgr federate`: a real Flower federation on this machine, or what several machines need for one."""

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer import Argument, Option

from ecgr.cli.console import complain, print_json, printable, round_progress, say, show_end
from ecgr.cli.options import ExperimentName, Json, Out, Resume, Set, command, gathered, overrides, preset_names
from ecgr.config.experiment import Experiment, load
from ecgr.config.user_code import NAMED, task_or_name
from ecgr.errors import ConfigError, DataError
from ecgr.runs.record import RunRecord
from ecgr.tasks.data import Site

if TYPE_CHECKING:
    from ecgr.flower.fleet import Listed
    from ecgr.flower.folders import Deployment
    from ecgr.flower.guard import Guard

T = TypeVar("T")

federate_app = typer.Typer(
    help="A real federation on Flower: on this machine, or the files for several.", no_args_is_help=True
)

DEFAULT_CLIENTS = 3
ETC = Path("/etc/ecgr")

COMMON = ("time", "at", "event", "round", "site", "reason")
"""What a line for a person begins and ends with."""

DETAILS = ("arrays", "numbers", "count", "bytes")
"""What it leaves out, or says in other words."""

PresetOrFile = Annotated[
    str,
    Argument(metavar="[PRESET or FILE]", help="A preset's name or a TOML file.", autocompletion=preset_names),
]
Clients = Annotated[int | None, Option("--clients", help="How many sites; 3 by default.")]


def _made(kind: Callable[..., T], **options: object) -> T:
    """What options make; a problem with a field is one with the option of that name."""
    try:
        return kind(**options)
    except ConfigError as error:
        option = partial(re.sub, r"^(?:\w+\.)?(\w+)", lambda field: f"--{field[1].replace('_', '-')}")
        raise ConfigError(*map(option, error.problems)) from None


def _guard(
    min_clients: Annotated[int, Option(help="With fewer usable replies a round is void.")] = 2,
    deadline: Annotated[float, Option(help="Seconds after which a reply is missing.")] = 600.0,
    norm_factor: Annotated[
        float, Option(help="An update longer than this times what is expected is an outlier.")
    ] = 10.0,
    outliers: Annotated[str, Option(help="What happens to outliers: reject or clip.")] = "reject",
) -> "Guard":
    from ecgr.flower.guard import Guard

    return _made(Guard, min_clients=min_clients, deadline=deadline, norm_factor=norm_factor, outliers=outliers)


@command(
    federate_app,
    "local",
    "ecgr federate local quickstart --clients 3",
    "ecgr federate local my_task.py:task",
    "ecgr federate local hospitals/heart_disease --sites hospitals/",
)
@gathered(guard=_guard)
def local_command(
    experiment: ExperimentName = "quickstart",
    clients: Clients = None,
    sites: Annotated[Path | None, Option(help="A folder with one folder a site: its data and nobody else's.")] = None,
    settings: Set = None,
    out_dir: Out = None,
    *,
    guard: Any,
    resume: Resume = False,
    keep: Annotated[bool, Option("--keep", help="Keep keys, logs and site states in DIR/.federation.")] = False,
    as_json: Json = False,
) -> None:
    """Run an experiment as a federation of processes on this machine, with TLS and a key for every site."""
    folders = [] if sites is None else _folders(sites, clients)
    task = NAMED.fullmatch(experiment) is not None
    if task and folders:
        raise ConfigError(f"--sites: {experiment} brings all samples itself; leave --sites out, or give a TOML file")
    # A task knows its clients; how many sites share a preset's samples has to be said.
    count = clients if task else len(folders) or (DEFAULT_CLIENTS if clients is None else clients)
    changes = _changes(count, settings)
    chosen = load(task_or_name(experiment), changes)
    from ecgr.flower.folders import Plan
    from ecgr.flower.local import federate  # says what to install where Flower is missing
    from ecgr.runs.record import refuse_foreign

    directory = out_dir or Path("runs") / f"{chosen.run.name or 'run'}-federated"
    refuse_foreign(directory, resume)
    listed = _sites_of(folders, chosen)
    made_by = {"task": experiment, "folder": str(Path.cwd()), "settings": changes} if task else None
    plan = Plan(chosen, listed, guard, directory, local_data=bool(folders), task=made_by)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = [site.name for site in listed]
    with round_progress(f"{len(listed)} sites", chosen.federation.rounds, names) as progress:
        record = federate(plan, progress, complain, folders)
    for line in _not_used(record, names):
        complain(line)
    if not keep:
        shutil.rmtree(directory / ".federation")
    show_end(record, directory, as_json)


def _not_used(record: RunRecord, names: Sequence[str]) -> list[str]:
    """Sites that were left out of the run, or of some of its rounds: a line each, with the last reason."""
    lines = [f"note: {note}" for note in record.manifest["notes"] if note.startswith("left out: ")]
    rows, reasons = record.rounds, dict[int, dict[int, str]]()
    for row in rows:
        for each in row["rejected"]:
            if not each["reason"].startswith("void attempt"):  # the round was played again
                reasons.setdefault(each["client"], {})[row["round"]] = each["reason"]
    for client, by_round in sorted(reasons.items()):
        share, last = f"{len(by_round)} of {len(rows)} rounds", [*by_round.values()][-1]
        lines.append(f"note: {names[client]}: rejected in {share}: {last}")
    return lines


def _folders(sites: Path, clients: int | None) -> list[Path]:
    """The sites' folders, in the order of their names."""
    found = sorted(path for path in sites.iterdir() if path.is_dir()) if sites.is_dir() else []
    if len(found) < 2:
        raise ConfigError(f"--sites: {sites} has {len(found)} folders; give a folder with one for every site")
    if clients not in (None, len(found)):
        raise ConfigError(f"--clients: {clients}, but {sites} has {len(found)} folders; leave one of the two out")
    return found


def _sites_of(folders: list[Path], chosen: Experiment) -> "list[Listed]":
    """The sites with what each holds; what cannot be trained is said here, not in a server's or a site's log."""
    from ecgr.flower.fleet import NAME, Listed
    from ecgr.simulation.prepare import check_site

    listed = []
    for client, folder in enumerate(folders):
        with _looking_in(folder):
            found = check_site(chosen, client)
        name = folder.name if NAME.fullmatch(folder.name) else f"site-{client}"
        listed.append(Listed(name, found["train"], found["test"]))
    return listed or [Listed(f"site-{client}", size) for client, size in enumerate(_sizes(chosen))]


@contextmanager
def _looking_in(folder: Path) -> Iterator[None]:
    """Find data where the site of ``folder`` would, for the length of a block."""
    from ecgr.flower.local import data_places

    before = dict(os.environ)
    os.environ.update(data_places(folder))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _sizes(chosen: Experiment) -> list[int]:
    """How many samples each client gets of a set that all sites hold."""
    from ecgr.simulation.prepare import prepare

    return prepare(chosen, chosen.source.load()).partition.sizes()


@command(federate_app, "keys", "ecgr federate keys --out /etc/ecgr")
def keys_command(
    out_dir: Annotated[Path, Option("--out", help="Where to write; made for its owner alone.")] = ETC,
) -> None:
    """At a site: make the site's own key. The private half stays there; the public one goes to the operator."""
    from ecgr.flower.keys import fingerprint, make_node_key

    public = make_node_key(out_dir)
    say(f"{out_dir / 'node'}: the private key; it stays here, and nobody else is to see it")
    say(f"{public}: the public key; send it to the operator, who saves it as server/keys/NAME.pub")
    say(f"{fingerprint(public)}: tell the operator by another way; there: ssh-keygen -lf server/keys/NAME.pub")


@command(
    federate_app,
    "check",
    "ECGR_DATA=/srv/ecgr/data ecgr federate check /etc/ecgr",
    "ECGR_DATA=/srv/ecgr/data ecgr federate check hospitals/heart_disease --clients 4 --client 2",
)
def check_command(
    experiment: Annotated[
        str, Argument(metavar="[DIR, PRESET or FILE]", help="The site's folder, a preset's name or a TOML file.")
    ] = str(ETC),
    client: Annotated[int | None, Option(help="Which site this is, from 0; a site's folder says it.")] = None,
    clients: Clients = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """At a site: load what it holds, train one step, and say what was found. Nothing is sent."""
    _refuse_task(experiment)
    folder, name = Path(experiment), f"site-{client or 0}"
    if folder.is_dir():
        from ecgr.flower.bundles import read_site

        site = read_site(folder)
        if client not in (None, site["client"]):
            raise ConfigError(f"--client: {client}, but {folder} is the folder of {site['name']} ({site['client']})")
        experiment, client, name = str(folder / "experiment.toml"), site["client"], site["name"]
    chosen = load(experiment, _changes(clients, settings))
    from ecgr.simulation.prepare import check_site

    found = check_site(chosen, client or 0)
    if as_json:
        print_json({"experiment": experiment, "site": name, "client": client or 0, **found})
        return
    shape = ", ".join(f"{size} {what}" for what, size in found["shape"].items())
    files = ", ".join(found["files"]) or "no file is named by its data set"
    say(f"{experiment}: trains as {name} (client {client or 0} of {chosen.partition.clients})")
    say(f"{files}: {found['train']:,} training and {found['test']:,} test samples ({shape})")
    say(f"trained by {found['loss']}, judged by {', '.join(found['metrics'])}")
    say(
        f"one step of a model with {found['parameters']:,} parameters: loss {found['step_loss']:.4f}, it moved by"
        f" {found['step_norm']:.3g}; nothing was sent"
    )


@command(federate_app, "approve", "ECGR_AUDIT=/var/lib/ecgr/audit ecgr federate approve /etc/ecgr/signer.pub")
def approve_command(
    key: Annotated[Path, Argument(help="The public key of who signs the code: signer.pub.")],
    folder: Annotated[Path, Option(help="The site's folder.")] = ETC,
    withdraw: Annotated[bool, Option("--withdraw", help="Approve it no longer; restart the SuperNode then.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> None:
    """At a site: see the code that the server wants to run here, and approve whoever signed it."""
    from ecgr.flower.bundles import approve, files_in, key_id, read_site, signed_by
    from ecgr.flower.folders import is_ours
    from ecgr.flower.keys import fingerprint

    site, (identifier, _) = read_site(folder), key_id(key)
    if not withdraw:
        bundle = signed_by(folder, key)
        for name, data in files_in(bundle).items():
            say(f"{sha256(data).hexdigest()}  {len(data):>6,} bytes  {name}")
            if not is_ours(name, data):
                say(indent("\n".join(map(printable, data.decode(errors="replace").splitlines())), "    | "))
        say(f"{bundle.hash_str}  the bundle; text that this version of ecgr does not itself write is shown above")
    say(f"{fingerprint(key)}  {key}, known as {identifier}: compare it with what its owner says, by another way")
    if not (yes or withdraw):
        typer.confirm(f"Run whatever this key signs, as {site['name']}?", abort=True)
    approve(folder, key, withdraw=withdraw)
    say(f"{'withdrawn' if withdraw else 'approved'}; it counts from the next start of the SuperNode on")


@command(federate_app, "site", "ecgr federate site /etc/ecgr")
def site_command(
    folder: Annotated[Path, Argument(metavar="[DIR]", help="The site's folder.")] = ETC,
    port: Annotated[int, Option(help="A port of the loopback interface, for the SuperNode's own processes.")] = 9094,
) -> None:
    """At a site: run its SuperNode, which takes only code that the site has approved, and logs what it takes."""
    from ecgr.flower.bundles import run_site

    run_site(folder, ["--port", str(port)])


@command(federate_app, "start", "ecgr federate start /srv/federation/server")
def start_command(
    server: Annotated[Path, Argument(help="The server's folder.")],
    sign_with: Annotated[Path | None, Option(metavar="KEY", help="First make the bundle anew, signed by it.")] = None,
    as_json: Json = False,
) -> None:
    """At the server: start the run of the signed bundle, or go on with it."""
    from ecgr.flower.bundles import sign_app, start_run

    if sign_with is not None:
        sign_app(server, sign_with)
    run = start_run(server)
    if as_json:
        print_json({"success": True, "run": run})
    else:
        say(f"run {run} is started; to watch: ecgr federate log {server}, flwr log {run} here")


@command(
    federate_app, "log", "ecgr federate log /srv/federation/server", "ecgr federate log /var/lib/ecgr/audit --json"
)
def log_command(
    folder: Annotated[
        Path, Argument(metavar="[DIR]", help="The log's folder, or a server's, site's or run's.")
    ] = Path(),
    as_json: Annotated[bool, Option("--json", help="The lines as they are.")] = False,
) -> None:
    """Print an audit log: who started what, who took part, what was sent and received, what was refused and why."""
    from ecgr.flower.audit import events_of, files_of, lines_of

    places = [folder, folder / "audit", folder / ".federation" / "server" / "audit"]
    found = next((place for place in places if files_of(place)), None)
    if found is None:
        raise DataError(f"{folder}: no audit log there (audit.jsonl)")
    for line in lines_of(found) if as_json else events_of(found):
        say(line.decode(errors="replace") if isinstance(line, bytes) else printable(_told(line)))


def _told(event: Mapping[str, Any]) -> str:
    """An event as a line for a person.

    >>> _told({"time": "2026-01-31T12:00:00.123+00:00", "at": "server", "event": "refused", "round": "2.1",
    ...        "site": "va", "reason": "failed: SuperNode gone", "run": 7})
    '2026-01-31 12:00:00  server  refused   round 2.1  va  run 7: failed: SuperNode gone'
    """
    if "arrays" in event:
        norm = "unknown" if event["norm"] is None else f"{event['norm']:.4g}"
        about = {"content": f"{event['count']} arrays of {event['bytes']:,} bytes", "norm": norm}
        event = {key: value for key, value in event.items() if key not in DETAILS} | about
    when, at, what, place, site, reason = (str(event.get(name) or "") for name in COMMON)
    rest = ", ".join(f"{name} {_short(value)}" for name, value in event.items() if name not in COMMON)
    words = [when[:19].replace("T", " "), at, f"{what:<8}", place and f"round {place}", site, rest]
    return "  ".join(word for word in words if word) + (f": {reason}" if reason else "")


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_short, value)) or "none"
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 and text.isalnum() else text


def _deployment(
    server: Annotated[str, Option(help="The name under which sites reach the server.")],
    bind: Annotated[str, Option(help="Where the SuperLink listens; loopback, behind the proxy.")] = "127.0.0.1",
    port: Annotated[int, Option(help="The proxy's public port.")] = 8443,
    body_limit: Annotated[int, Option(help="Largest request of a site, in megabytes.")] = 64,
    proxied: Annotated[bool, Option("--proxy/--no-proxy", help="Whether the proxy stands in front.")] = True,
    environment: Annotated[str, Option(help="The virtual environment that has ecgr, on every machine.")] = "/opt/ecgr",
    data: Annotated[str, Option(help="Where a site's data lie.")] = "/srv/ecgr/data",
) -> "Deployment":
    from ecgr.flower.folders import Deployment

    where: dict[str, Any] = {"server": server, "bind": bind, "port": port, "body_limit": body_limit}
    return _made(Deployment, **where, proxied=proxied, environment=environment, data=data)


@command(
    federate_app,
    "init",
    "ecgr federate init quickstart --server fl.example.org --clients 3",
    "ecgr federate init my.toml --server fl.example.org --local-data --site cleveland=303 --site hungarian=294",
)
@gathered(deployment=_deployment, guard=partial(_guard, deadline=3600.0))
def init_command(
    experiment: PresetOrFile = "quickstart",
    clients: Clients = None,
    sites: Annotated[
        list[str] | None,
        Option("--site", metavar="NAME=SAMPLES", help="A site and the most samples it may claim. Repeatable."),
    ] = None,
    settings: Set = None,
    out_dir: Annotated[Path, Option("--out", help="Where to write; must be new or empty.")] = Path("federation"),
    local_data: Annotated[
        bool, Option("--local-data", help="Each site holds its own samples; otherwise all hold the whole set.")
    ] = False,
    test: Annotated[Path | None, Option(help="Arrays at the server to evaluate on; else the sites do.")] = None,
    signing_key: Annotated[
        Path | None, Option(metavar="KEY", help="An Ed25519 key that signs the code; else one is made in signing/.")
    ] = None,
    server_samples: Annotated[Path | None, Option(help="The server's own labelled arrays, for +server_steps.")] = None,
    *,
    deployment: Any,
    guard: Any,
) -> None:
    """Write the files and the exact commands for a federation of several machines."""
    _refuse_task(experiment)
    listed = _listed(sites, clients)
    chosen = load(experiment, _changes(len(listed), settings))
    from ecgr.flower.folders import Plan, write_deployment

    local_data = local_data or isinstance(chosen.source, Site)  # which is nobody's whole set
    if not local_data:
        with suppress(DataError):  # this may not be the machine that has the data; there the experiment says
            listed = [replace(site, samples=size) for site, size in zip(listed, _sizes(chosen), strict=True)]
    plan = Plan(chosen, listed, guard, out_dir / "server" / "run", local_data, test, server_samples)
    guide = write_deployment(out_dir, plan, deployment, signing_key)
    say(guide.read_text())
    say(f"All of this is in {out_dir}")


def _listed(sites: list[str] | None, clients: int | None) -> "list[Listed]":
    """Names and sizes from NAME=SAMPLES; without any, as many sites as are asked for."""
    from ecgr.flower.fleet import NAME, Listed

    if not sites:
        return [Listed(f"site-{client}") for client in range(DEFAULT_CLIENTS if clients is None else clients)]
    if clients not in (None, len(sites)):
        raise ConfigError(f"--clients: {clients}, but --site is given {len(sites)} times; leave --clients out")
    found: dict[str, Listed] = {}
    for text in sites:
        name, equals, size = text.partition("=")
        if name in found or not NAME.fullmatch(name) or (equals and not (size.isascii() and size.isdigit())):
            raise ConfigError(
                f"--site: {text!r}, expected NAME or NAME=SAMPLES, each name once, of letters, digits and . _ -"
            )
        found[name] = Listed(name, int(size) if equals else None)
    return [*found.values()]


def _refuse_task(experiment: str) -> None:
    """A Python file makes its samples where it runs, so what it makes at a site is not what the server has."""
    if NAMED.fullmatch(experiment):
        raise ConfigError(
            f"experiment: {experiment} is a task with its samples, which `federate local` and `ecgr run` can train; for"
            ' several machines give a preset or a TOML file, with [data] name = "site" where sites load their own'
        )


def _changes(clients: int | None, settings: list[str] | None) -> dict[str, Any]:
    """The config keys that are changed, the number of clients among them."""
    changes = overrides(settings)
    if clients is None:
        return changes
    if changes.get("partition.clients", clients) != clients:
        raise ConfigError(f"--clients: {clients} sites, but partition.clients is set to {changes['partition.clients']}")
    return {**changes, "partition.clients": clients}
