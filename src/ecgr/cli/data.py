"""`ecgr data` and `ecgr partition`: data sets, and how samples are partitioned."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from typer import Argument, Option

from ecgr.analysis.heterogeneity import Measure, of_counts, of_sums
from ecgr.cli.console import complain, out, print_json, print_table, say
from ecgr.cli.options import Json, Set, command, overrides
from ecgr.config.experiment import Experiment, load, presets
from ecgr.config.partition import divided
from ecgr.config.user_code import task_or_name
from ecgr.errors import EnvironmentFault
from ecgr.tasks.data import Dataset, available, fetch, strata, verify
from ecgr.tasks.partition import Partition, save_partition

Root = Annotated[str | None, Option("--root", help="Folder of the data sets; $ECGR_DATA by default.")]

data_app = typer.Typer(help="Which data sets are present and undamaged; download missing ones.")


@command(data_app, "list", "ecgr data list")
def list_command(as_json: Json = False) -> None:
    """Show every data set and where it was found."""
    rows = available()
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    nowhere = {True: "your own: you say where", False: "not found"}
    print_table([{"name": row.name, "what": row.description, "where": row.place or nowhere[row.own]} for row in rows])


@command(data_app, "verify", "ecgr data verify mnist")
def verify_command(
    names: Annotated[list[str] | None, Argument(help="Data sets; by default all that are present.")] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Read whole data sets. Damage is exit code 3; counts or bytes that are not the official ones are noted."""
    chosen = names or [row.name for row in available() if row.place is not None]
    reports = [verify(name, root) for name in chosen]
    if as_json:
        print_json([{**asdict(report), "counts": dict(report.counts)} for report in reports])
        return
    for report in reports:
        counts = " + ".join(f"{count:,} {split}" for split, count in report.counts.items())
        say(f"{report.name}: {'; '.join(report.details)} ({counts})")


@command(data_app, "fetch", "ecgr data fetch mnist --root ~/data")
def fetch_command(names: Annotated[list[str], Argument(help="Data sets to download.")], root: Root = None) -> None:
    """Download data sets, and check them against their known hashes."""
    for name in names:
        folder = fetch(name, root)
        say(f"{name}: {folder}")


def partition_command(
    experiment: Annotated[
        str | None,
        Argument(metavar="[PRESET or FILE]", help="As for run and compare; by default the preset for --data."),
    ] = None,
    data: Annotated[str | None, Option(help="Data set.")] = None,
    clients: Annotated[int | None, Option(help="How many clients.")] = None,
    alpha: Annotated[float | None, Option(help="Concentration of the Dirichlet draw.")] = None,
    seed: Annotated[int | None, Option(help="Seed.")] = None,
    settings: Set = None,
    save: Annotated[Path | None, Option(dir_okay=False, help="Write the partition for partition.file.")] = None,
    picture: Annotated[Path | None, Option(dir_okay=False, help="PNG, PDF or SVG; partition.png by default.")] = None,
    as_json: Json = False,
) -> None:
    """Show how the samples are partitioned among the clients, and how heterogeneous they are: tables and a picture."""
    given = {"data.name": data, "partition.clients": clients, "partition.alpha": alpha, "run.seed": seed}
    changes = {key: value for key, value in given.items() if value is not None} | overrides(settings)
    source = _preset_for(str(changes.get("data.name", "digits"))) if experiment is None else task_or_name(experiment)
    chosen = load(source, changes)
    dataset, partition, _ = divided(chosen, _features(chosen, chosen.source.load()))
    kinds = strata(dataset.train.targets)
    classes = dataset.classes or tuple(f"tenth {kind + 1}" for kind in range(int(kinds.max()) + 1))
    counts = partition.histogram(kinds, len(classes))
    batch, names = chosen.federation.batch_size, _natural_names(dataset, partition)
    rows = [
        {"client": client, "samples": int(n.sum()), "classes": int((n > 0).sum()), "batches": -(-int(n.sum()) // batch)}
        | ({"name": names[client]} if names else {})
        for client, n in enumerate(counts)
    ]
    if save is not None:
        save_partition(save, partition, len(dataset.train))
    drawn = _picture(chosen, classes, counts, picture) if picture is not None or not as_json else None
    measures = [*of_counts(counts), *_feature_shift(dataset, partition)]
    if as_json:
        told = [{**asdict(each), "scale": each.scale, "helps": each.helps} for each in measures]
        print_json({"clients": rows, "heterogeneity": told})
        return
    print_table(rows)
    for measure in measures:
        say(measure.sentence)
    where = "" if drawn is None else f"; {drawn}"
    out.print(f"{sum(partition.sizes()):,} of {len(dataset.train):,} samples are at clients{where}", soft_wrap=True)


def _features(chosen: Experiment, dataset: Dataset) -> Dataset:
    """The samples as the part of the model sees them that is trained: features of a frozen body, where there is one."""
    if chosen.model.trainable is None:
        return dataset
    from ecgr.simulation.prepare import starting_point  # loads torch

    return starting_point(chosen, dataset).dataset


def _feature_shift(dataset: Dataset, partition: Partition) -> list[Measure]:
    """Of inputs that are one array of floats or pixels."""
    inputs = dataset.train.inputs
    if not isinstance(inputs, np.ndarray) or not (inputs.dtype.kind == "f" or dataset.mean):
        return []
    own = [inputs[indices].reshape(len(indices), -1) for indices in partition]
    sums = np.stack([rows.sum(axis=0, dtype=np.float64) for rows in own])
    squares = np.sum([np.einsum("ij,ij->j", rows, rows, dtype=np.float64) for rows in own], axis=0)
    return of_sums(partition.sizes(), sums, squares)


def _natural_names(dataset: Dataset, partition: Partition) -> list[str]:
    """Each client's group, where every client has one and no more."""
    if dataset.train.groups is None:
        return []
    found = [np.unique(dataset.train.groups[part]) for part in partition]
    return [str(names[0]) if len(names) else "" for names in found] if all(len(n) < 2 for n in found) else []


def _picture(
    chosen: Experiment, classes: tuple[str, ...], counts: NDArray[np.int64], asked: Path | None
) -> Path | None:
    """Draw the partition; without ``asked``, a missing extra is only noted."""
    from ecgr.report.figures import draw_partition

    path = asked or Path("partition.png")
    try:
        draw_partition(counts, classes, path, f"{chosen.to_dict()['data']['name']}, seed {chosen.run.seed}")
    except EnvironmentFault as error:
        if asked is not None:
            raise
        complain(f"note: no picture: {error}")
        return None
    return path


def _preset_for(data: str) -> str | dict[str, Any]:
    """The preset that goes with a data set; its batch size sets the smallest client."""
    if data == "digits":
        return "quickstart"
    usual = (f"{folder}/{data}" for folder in ("paper", "hospitals", "text"))
    return next((name for name in usual if name in presets()), {})
