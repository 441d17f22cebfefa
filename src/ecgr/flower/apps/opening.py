"""A federation before its first round: who holds which samples, and the problem that the server makes of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower.apps.enrolment import complete_list, left_out
from ecgr.flower.apps.fleet import Fleet
from ecgr.flower.guard import Guard
from ecgr.simulation.prepare import prepare, prepare_server
from ecgr.simulation.workspace import Problem
from ecgr.tasks.data.arrays import read_arrays, samples_of
from ecgr.tasks.data.dataset import Provenance


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A federation before its first round: the problem, what the record says of its data, and who holds them."""

    problem: Problem
    data: Provenance
    fleet: Fleet
    scored_by_sites: bool = False


def dealt(experiment: Experiment, fleet: Fleet, device: str) -> Opened:
    """A data set that every site holds, dealt out by the experiment."""
    dataset = experiment.source.load()
    problem = prepare(experiment, dataset, device)
    return Opened(problem, dataset.provenance, fleet.holding(problem, dataset.shape))


def enrol(
    experiment: Experiment, fleet: Fleet, guard: Guard, test: str | Path | None, before: Sequence[int] | None
) -> Opened:
    """Samples that sites hold and keep: the server hears how many, and starts with those that it believes.

    ``before`` says how many each had when this run began: a run goes on with the same sites and sizes.
    """
    if experiment.partition.clients is None:
        raise ConfigError("partition.clients: missing; a federation is told how many sites it has")
    clients = range(experiment.partition.clients)
    fleet = replace(fleet, listed=complete_list(fleet.listed, len(clients)))
    replace(fleet, joining=True).wait_for(clients, len(clients), guard.deadline)
    for client, reason in left_out(fleet.listed, fleet.sites).items():
        fleet.leave_out(client, reason)
    if before is not None:
        for client, site in list(fleet.sites.items()):
            if site.examples != before[client]:
                fleet.leave_out(client, f"examples: {site.examples:,}, but {before[client]:,} when this run began")
    _check_enough(fleet, guard, before)
    first = next(iter(fleet.sites.values()))
    samples = None if test is None else samples_of(str(test), read_arrays(Path(test)))
    now = [fleet.sites[client].examples if client in fleet.sites else 0 for client in clients]
    sizes = now if before is None else list(before)
    problem = prepare_server(experiment, json.loads(first.shape), first.loss, first.metrics, sizes, samples)
    if problem.spec.digest() != first.parameters:
        raise ConfigError("model: the server makes another one than the sites; install the same packages everywhere")
    held = {site.name: f"{size} samples" for site, size in zip(fleet.listed, sizes, strict=True) if size}
    notes = ["held by the sites: the server knows how many samples each has, and none of them"]
    notes += [f"left out: {fleet.name(client)}: {reason}" for client, reason in sorted(_missing(fleet, guard).items())]
    return Opened(problem, Provenance((), held, tuple(notes)), fleet, scored_by_sites=samples is None)


def _missing(fleet: Fleet, guard: Guard) -> dict[int, str]:
    """Why sites are not there."""
    absent = f"did not join within {guard.deadline:g} s; see the log of its SuperNode"
    return {c: fleet.refused.get(c, absent) for c in range(len(fleet.listed)) if c not in fleet.sites}


def _check_enough(fleet: Fleet, guard: Guard, before: Sequence[int] | None) -> None:
    """Refuse to start with too few sites, or without more than half of the samples, as far as they are known."""
    sizes = [site.samples for site in fleet.listed] if before is None else list(before)
    known = [size for size in sizes if size is not None]
    weights = known if len(known) == len(sizes) else [1] * len(sizes)
    missing = _missing(fleet, guard)
    if len(fleet.sites) < guard.min_clients or 2 * sum(weights[client] for client in missing) > sum(weights):
        reasons = "; ".join(f"{fleet.name(client)}: {reason}" for client, reason in sorted(missing.items()))
        raise QuorumLost(f"enrolment: {len(fleet.sites)} of {len(fleet.listed)} sites can take part ({reasons})")
