"""What crosses the wire, in Flower's records: the order that goes down and the reply that comes up.

An order carries the global model and where the round stands; a reply carries the payload of the algorithm, the
model's statistics and numbers for the record. Reading an order trusts the server. Reading a reply trusts nothing: what
is not exactly as expected is a `Refusal`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from ecgr.algorithms import Upload
from ecgr.component import NonNegative, State, component
from ecgr.errors import ConfigError
from ecgr.simulation.client import ClientJob
from ecgr.tables import shown

T = TypeVar("T")

ARRAYS, ORDER, REPORT, METRICS, SITE = "arrays", "order", "report", "metrics", "site"
REPLY = {ARRAYS: ArrayRecord, METRICS: MetricRecord, REPORT: ConfigRecord}
SCORES = {METRICS: MetricRecord, REPORT: ConfigRecord}
UPLOADED = ("examples", "steps", "train_loss", "seconds")
"""What a report says as the upload does."""

HEAD = {ARRAYS: ArrayRecord, REPORT: ConfigRecord}
SUMS = "evaluate.sums"
"""The message that asks for the sums of a head."""

LOSS, METRIC = "loss", "metric/"
NEVER = -1
"""Stands for a round where there was none."""

UNKNOWN = -1
"""Stands for the client of a node that nobody enrolled."""

FLOWER_ERRORS = {
    1: "the ClientApp cannot be loaded",
    2: "the ClientApp raised",
    3: "the order was not delivered",
    4: "the reply was not delivered",
    5: "SuperNode gone",
    7: "the site has not approved this code",
    8: "the ClientApp died",
}


class Refusal(Exception):
    """Why a reply does not count: a word, and what is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """One client's work in one round, as the site gets it.

    Attributes:
        run: names the run, across restarts of anything.
        remembered: the round whose client state the server counts on, `NEVER` before the first that was used.
        job: the work, without the client's state: that is the site's.
    """

    run: str
    remembered: int
    job: ClientJob

    def to_records(self) -> RecordDict:
        job = self.job
        arrays = {"params": job.params, **_prefix("buffers", job.buffers), **_prefix("server", job.server)}
        numbers: dict[str, Any] = {name: getattr(job, name) for name in ("client", "round_index", "lr")}
        order = ConfigRecord({"run": self.run, "remembered": self.remembered, **numbers})
        return RecordDict({ARRAYS: to_arrays(arrays), ORDER: order})

    @classmethod
    def from_records(cls, content: RecordDict) -> "Order":
        arrays = {name: torch.from_numpy(np.array(a.numpy())) for name, a in content.array_records[ARRAYS].items()}
        said: dict[str, Any] = dict(content.config_records[ORDER])
        run, remembered = said.pop("run"), said.pop("remembered")
        buffers, server = _with_prefix("buffers", arrays), _with_prefix("server", arrays)
        job = ClientJob(cost=1, params=arrays["params"], buffers=buffers, server=server, state={}, **said)
        return cls(run, remembered, job)

    def address(self) -> dict[str, Any]:
        """What an answer to this order begins with."""
        return {"run": self.run, "client": self.job.client, "round": self.job.round_index + 1}


@component
class Report:
    """What a reply says in words and numbers."""

    run: str
    client: int
    round: int
    examples: int
    steps: int
    train_loss: float
    seconds: NonNegative
    kept: list[int]
    store: str
    state_lost: bool


def reply_records(order: Order, result: Upload, *, state_lost: bool) -> RecordDict:
    """What a site answers."""
    said = {**order.address(), **{name: getattr(result, name) for name in UPLOADED}}
    report = ConfigRecord({**said, "kept": list(result.kept), "store": result.store or "", "state_lost": state_lost})
    arrays = to_arrays(reply_tensors(result.payload, result.buffers))
    return RecordDict({ARRAYS: arrays, METRICS: MetricRecord(dict(result.metrics)), REPORT: report})


def reply_tensors(payload: State, buffers: State) -> dict[str, Tensor]:
    """The tensors of a reply by their names on the wire."""
    return {**_prefix("payload", payload), **_prefix("buffers", buffers)}


def split_reply(tensors: State) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The inverse of `reply_tensors`: payload and buffers."""
    return _with_prefix("payload", tensors), _with_prefix("buffers", tensors)


def to_arrays(tensors: State) -> ArrayRecord:
    """Named tensors as Flower's arrays, bit for bit."""
    # order="C" and not ascontiguousarray, which would turn a scalar into a vector
    return ArrayRecord({name: Array(np.asarray(tensor.numpy(), order="C")) for name, tensor in tensors.items()})


def _prefix(prefix: str, state: State) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in state.items()}


def _with_prefix(prefix: str, tensors: State) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def records_of(
    reply: Message | str, expected: Mapping[str, type], sent: tuple[int, str, int] | None = None
) -> list[Any]:
    """The expected records of a reply, and no others; ``sent`` is the run, group and node of the message it answers."""
    check_answer(reply, sent)
    assert isinstance(reply, Message)
    if not reply.has_content() or {name: type(record) for name, record in reply.content.items()} != expected:
        found = sorted(reply.content) if reply.has_content() else "nothing"
        raise Refusal(f"records: {shown(found)}, expected {', '.join(expected)}")
    return [reply.content[name] for name in expected]


def check_answer(reply: Message | str, sent: tuple[int, str, int] | None) -> None:
    """Refuse what is no answer to a message. An error's text goes no further: it may quote a site's data."""
    if isinstance(reply, str):
        raise Refusal(f"unreadable: {reply}")
    if reply.has_error():
        code, said = int(reply.error.code), reply.error.reason or ""
        name = said if re.fullmatch(r"[A-Za-z_]\w{0,63}", said, re.ASCII) else "an error"
        raise Refusal(f"failed: {FLOWER_ERRORS.get(code, f'{name} (code {code})')}")
    metadata = reply.metadata
    found = (metadata.run_id, metadata.group_id, metadata.src_node_id)
    for word, ours, theirs in zip(("run", "round", "client"), sent or found, found, strict=True):
        if ours != theirs:
            raise Refusal(f"{word}: the reply is for another run, round or attempt, or from another node")


def read(kind: type[T], record: Mapping[str, Any]) -> T:
    """A record as the component that it must be."""
    if record.keys() != {field.name for field in fields(kind)}:  # type: ignore[arg-type]
        raise Refusal(f"keys: {shown(sorted(record))}")
    try:
        return kind(**record)
    except ConfigError as error:
        where, _, rule = error.problems[0].removeprefix(f"{kind.__name__}.").partition(": ")
        raise Refusal(f"{where.split('.')[0]}: {rule}") from None


def read_arrays(arrays: Mapping[str, Array], expected: State) -> dict[str, Tensor]:
    """The tensors of a record, which must have the names, shapes and dtypes of those expected."""
    if differing := expected.keys() ^ arrays.keys():
        name = min(differing)
        raise Refusal(f"names: {shown(name)} {'is missing' if name in expected else 'is not part of it'}")
    return {name: _read_array(name, arrays[name], tensor) for name, tensor in expected.items()}


def _read_array(name: str, array: Array, like: Tensor) -> Tensor:
    """An array's values if its dtype and shape are those of ``like``; nothing is allocated before that is known."""
    dtype, shape = like.numpy().dtype, tuple(like.shape)
    if array.dtype != str(dtype):
        raise Refusal(f"dtype: {name} is {shown(array.dtype)}, expected {dtype}")
    if tuple(array.shape) != shape:
        raise Refusal(f"shape: {name} is {shown(tuple(array.shape))}, expected {shape}")
    stream = BytesIO(array.data)
    try:
        if array.stype != "numpy.ndarray" or np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("not in numpy's format")
        header = np.lib.format.read_array_header_1_0(stream)
    except ValueError:
        raise Refusal(f"encoding: {name} is not in numpy's format") from None
    if header != (shape, False, dtype) or len(array.data) - stream.tell() != like.numel() * like.element_size():
        raise Refusal(f"encoding: {name} holds other bytes than it declares")
    return torch.from_numpy(np.frombuffer(array.data, dtype, offset=stream.tell()).reshape(shape).copy())
