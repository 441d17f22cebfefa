"""How close lossy stores come on real training steps: steps kept in common, and the cosine of the two updates."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean

from torch import Tensor
from torch.nn.functional import cosine_similarity

from benchmarks.rows import Row, at_least, skipped
from ecgr.config.experiment import load
from ecgr.core.geometry import Geometry
from ecgr.core.recorder import Recorder
from ecgr.core.regulators import ECGR
from ecgr.core.stores import STORES, DenseStore, Kind
from ecgr.errors import DataError
from ecgr.simulation.client import train_client
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import round_jobs, start
from ecgr.simulation.workspace import Workspace

CASES = {
    "lenet": (
        "paper/mnist",
        {},
        {"int8": (0.999, 0.9999)},
    ),
    "cnn": (
        "paper/cifar10",
        {"data.fraction": 0.25, "federation.batch_size": 32},
        {"int8": (0.99, 0.9999)},
    ),
}
STEPS = {"lenet": (20, 150, 8), "cnn": (30, 80, 3)}
"""Clients with so many steps, and at most so many of them."""


def rows(quick: bool) -> Iterator[Row]:
    for model, (preset, changes, bounds) in CASES.items():
        if quick and model == "cnn":
            continue
        try:
            sets = list(training_steps(preset, changes, *STEPS[model]))
        except DataError as error:
            yield skipped(f"fidelity: {model}", str(error))
            continue
        for store, (same, direction) in bounds.items():
            found = [agreement(STORES[store], steps) for steps in sets]
            common = sum(f[0] * (len(steps) // 2) for f, steps in zip(found, sets, strict=True))
            kept = sum(len(steps) // 2 for steps in sets)
            note = f"{kept} kept steps of {len(sets)} clients, T = {min(map(len, sets))} to {max(map(len, sets))}"
            yield at_least(f"fidelity: kept steps in common, {store}, {model}", common / kept, same, note)
            yield at_least(
                f"fidelity: cosine of the update, {store}, {model}", fmean(f[1] for f in found), direction, note
            )


def training_steps(preset: str, changes: dict[str, object], least: int, most: int, count: int) -> Iterator[DenseStore]:
    """The steps of some clients of a paper's experiment, each going on from the model of the one before."""
    experiment = load(preset, changes)
    workspace = Workspace(prepare(experiment, experiment.source.load()))
    batch = experiment.federation.batch_size
    jobs = [
        j for j in round_jobs(workspace.problem, start(workspace.problem)) if least * batch <= j.cost <= most * batch
    ]
    params, buffers = jobs[0].params, jobs[0].buffers
    for job in sorted(jobs, key=lambda job: job.cost)[:count]:
        with kept_stores() as stores:
            result, _ = train_client(replace(job, params=params, buffers=buffers), workspace)
        yield stores[0]
        params, buffers = params - result.payload["update"], result.buffers


@contextmanager
def kept_stores() -> Iterator[list[DenseStore]]:
    """Collects the sets that recorders make, which otherwise go with them."""
    stores: list[DenseStore] = []
    entered = Recorder.__enter__

    def keep(self: Recorder) -> Recorder:
        entered(self)
        stores.append(self._store)
        return self

    Recorder.__enter__ = keep  # type: ignore[method-assign]
    try:
        yield stores
    finally:
        Recorder.__enter__ = entered  # type: ignore[method-assign]


def agreement(make: Kind, truth: DenseStore) -> tuple[float, float]:
    """Overlap and cosine of ECGR on a store against ECGR on the steps themselves."""

    def each() -> Iterator[Tensor]:
        for chunk in truth._chunks:
            yield from chunk

    store = make(truth._size, steps=len(truth))
    for step in list(each())[: len(truth)]:
        store.append(step)
    exact, found = (ECGR()(Geometry(gram=s.gram())) for s in (truth, store))
    updates = [s.combine(r.coefficients).double() for s, r in ((truth, exact), (store, found))]
    common = len({*found.kept} & {*exact.kept}) / len(exact.kept)
    return common, float(cosine_similarity(*updates, dim=0))
