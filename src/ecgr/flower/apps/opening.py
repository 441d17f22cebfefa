"""A federation before its first round: who holds which samples, and the problem that the server makes of it."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower.apps.enrolment import check_agreement
from ecgr.flower.apps.fleet import Fleet
from ecgr.flower.guard.guard import Guard
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
    sizes = {client: size for client, size in enumerate(problem.partition.sizes()) if size}
    return Opened(problem, dataset.provenance, replace(fleet, enrolled=sizes))


def enrol(experiment: Experiment, fleet: Fleet, guard: Guard, test: str | Path | None) -> Opened:
    """Samples that sites hold and keep: the server waits for all of them, and takes their word for how many."""
    clients = experiment.partition.clients
    if clients is None:
        raise ConfigError("partition.clients: missing; a federation is told how many sites it has")
    fleet = replace(fleet, places=clients)
    fleet.wait_for(range(clients), clients, guard.deadline)
    absent = [client for client in range(clients) if client not in fleet.sites]
    if absent:
        raise QuorumLost(
            f"enrolment: {', '.join(f'site {client}' for client in absent)} of {clients} did not join within"
            f" {guard.deadline:g} s; see the log of the SuperNode there, or run `ecgr federate check` at the site"
        )
    check_agreement(fleet.sites)
    first = fleet.sites[0]
    samples = None if test is None else samples_of(str(test), read_arrays(Path(test)))
    problem = prepare_server(
        experiment,
        json.loads(first.shape),
        first.loss,
        first.metrics,
        [fleet.sites[client].examples for client in range(clients)],
        samples,
    )
    if problem.spec.digest() != first.parameters:
        raise ConfigError("model: the server makes another one than the sites; install the same packages everywhere")
    said = {f"site-{client}": f"{site.examples} samples" for client, site in sorted(fleet.sites.items())}
    notes = ("held by the sites: the server knows how many samples each has, and none of them",)
    return Opened(problem, Provenance((), said, notes), fleet, scored_by_sites=samples is None)
