"""What crosses the wire, in Flower's records: the order that goes down and the reply that comes up.

An order carries the global model and where the round stands; a reply carries the payload of the algorithm, the
model's statistics and numbers for the record. Reading a reply trusts nothing: that is the guard's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from ecgr.algorithms import Upload
from ecgr.component import State
from ecgr.simulation.client import ClientJob

ARRAYS, ORDER, REPORT, METRICS, SITE = "arrays", "order", "report", "metrics", "site"
NUMBERS = ("run", "client", "round_index", "lr", "remembered")
"""What an order says besides its arrays."""

LOSS = "loss"
NEVER = -1
"""Stands for a round where there was none."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """One client's work in one round, as the site gets it.

    Attributes:
        run: names the run, across restarts of anything.
        client: who is meant.
        round_index: the round, from 0.
        lr: its learning rate.
        remembered: the round whose client state the server counts on, `NEVER` before the first that was used.
        params: the global parameters, flat.
        buffers: the global statistics.
        server: what the algorithm sends down with the model.
    """

    run: str
    client: int
    round_index: int
    lr: float
    remembered: int
    params: Tensor
    buffers: State
    server: State

    def to_records(self) -> RecordDict:
        """As Flower sends it."""
        arrays = {"params": self.params, **_prefix("buffers", self.buffers), **_prefix("server", self.server)}
        return RecordDict(
            {ARRAYS: to_arrays(arrays), ORDER: ConfigRecord({name: getattr(self, name) for name in NUMBERS})}
        )

    @classmethod
    def from_records(cls, content: RecordDict) -> "Order":
        """As it was sent; the server is trusted."""
        arrays = {name: _tensor(array) for name, array in content.array_records[ARRAYS].items()}
        numbers: dict[str, Any] = {name: content.config_records[ORDER][name] for name in NUMBERS}
        buffers, server = _with_prefix("buffers", arrays), _with_prefix("server", arrays)
        return cls(**numbers, params=arrays["params"], buffers=buffers, server=server)

    def job(self, state: State) -> ClientJob:
        """The work itself, for `train_client`."""
        return ClientJob(self.client, self.round_index, self.lr, 1, self.params, self.buffers, self.server, state)


def reply_records(order: Order, result: Upload, *, state_lost: bool) -> RecordDict:
    """What a site answers."""
    report = ConfigRecord(
        {
            "run": order.run,
            "client": order.client,
            "round": order.round_index,
            "examples": result.examples,
            "steps": result.steps,
            "train_loss": result.train_loss,
            "seconds": result.seconds,
            "kept": list(result.kept),
            "store": result.store or "",
            "state_lost": state_lost,
        }
    )
    arrays = to_arrays(reply_tensors(result.payload, result.buffers))
    return RecordDict({ARRAYS: arrays, METRICS: MetricRecord(dict(result.metrics)), REPORT: report})


def reply_tensors(payload: State, buffers: State) -> dict[str, Tensor]:
    """The tensors of a reply by their names on the wire."""
    return {**_prefix("payload", payload), **_prefix("buffers", buffers)}


def split_reply(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The inverse of `reply_tensors`: payload and buffers."""
    return _with_prefix("payload", tensors), _with_prefix("buffers", tensors)


def to_arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Named tensors as Flower's arrays, bit for bit."""
    # order="C" and not ascontiguousarray, which would turn a scalar into a vector
    return ArrayRecord({name: Array(np.asarray(tensor.numpy(), order="C")) for name, tensor in tensors.items()})


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array.numpy()))


def _prefix(prefix: str, state: State) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in state.items()}


def _with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(f"{prefix}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}/")
    }
