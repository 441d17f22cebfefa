"""Replies spoiled at random: each is used and valid, or refused with a reason; the honest ones are never touched."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ConfigRecord, Error, Message, MetricRecord

from ecgr.algorithms import Upload
from ecgr.flower import Guard
from ecgr.flower.guard import Asked
from ecgr.flower.wire import Order
from ecgr.simulation.rounds import start
from support.federations import federation
from support.problems import blobs, offer, problem, same_bits, small_net

CASES = 600
CULPRIT = 1
REASONS = """nonfinite norm range names shape dtype encoding weight steps scalar kept report records metrics run round
client failed duplicate unreadable missing"""
DTYPES = ("<f2", "<f4", "<f8", ">f4", "<i8", "<i4", "|i1", "|u1", "|b1", "<c8", "<U3", "<M8[s]")
NUMBERS = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, -1.0, 0.0, 1e-45, 1e6, -1e9, 2.0**62)
VALUES: tuple[Any, ...] = (
    0, -1, 1, 7, 2**40, 2**63 - 1, -(2**63), 10**400, 0.0, -1.5, float("nan"), float("inf"), 1e308, True, False,
    "", "x", "\x1b[31m\n", "x" * 10_000, b"\xff\x00", [], [1, 2], [-1], [2**62], [0.5], ["a"], [True],
)  # fmt: skip
NAMES = ("auc", "round", "state_lost", "client", "loss", "clipped", "new", "A", "__len__", "", "x" * 70, "a\nb")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Mapping[int, Asked], Mapping[int, Message]]:
    """A round's orders, and the honest replies to them."""
    offer(monkeypatch, net=small_net)
    chosen = problem(
        blobs(34),
        [range(10), range(10, 17), range(17, 34)],
        model={"name": "net"},
        algorithm={"name": "scaffold"},
        regulator={"name": "ecgr"},
        optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9},
        federation={"rounds": 1, "batch_size": 4},
    )
    orders, replies = {}, {}

    def listen(node: int, order: Message, reply: Message) -> list[Message]:
        read, meta = Order.from_records(order.content), order.metadata
        held = chosen.partition.sizes()[node]
        orders[node] = Asked(chosen, read, (meta.run_id, meta.group_id, meta.dst_node_id), held)
        replies[node] = deepcopy(reply)
        return [reply]

    federation(chosen, tmp_path, tamper=listen).play_round(start(chosen))
    return orders, replies


def spoiled(rng: np.random.Generator, reply: Message) -> Message | str:
    """The reply with one to three things wrong with it."""
    for _ in range(rng.integers(1, 4)):
        other: Message | str | None = _pick(rng, CHANGES)(rng, reply)
        if other is not None:
            return other
    return reply


def _pick(rng: np.random.Generator, values: Any) -> Any:
    values = list(values)
    return values[rng.integers(len(values))]


def _tensor(rng: np.random.Generator, reply: Message) -> None:
    arrays = reply.content.array_records.get("arrays")
    if not arrays:
        return
    name = _pick(rng, arrays)
    try:
        values = arrays[name].numpy().copy()
    except Exception:  # spoiled before
        return
    with np.errstate(all="ignore"):
        kind = rng.integers(7)
        if kind == 0:
            values = values.astype(_pick(rng, DTYPES))
        elif kind == 1:
            shape = _pick(rng, [(), (1,), (0,), (values.size + 1,), (max(values.size - 1, 0),), (values.size, 1)])
            values = np.resize(values, shape)
        elif kind == 2 and values.dtype.kind in "fi":
            values = (-values).astype(values.dtype)
        elif kind == 3 and values.dtype.kind == "f":
            values = values * values.dtype.type(10.0 ** int(rng.integers(-40, 38)))
        elif kind == 4 and values.dtype.kind == "i":
            values = values + rng.integers(-(2**40), 2**40)
        elif values.size and values.dtype.kind in "fi":
            flat = values.reshape(-1)
            flat[rng.integers(flat.size)] = np.asarray(_pick(rng, NUMBERS)).astype(values.dtype)
    arrays[name] = Array(np.asarray(values))


def _bytes(rng: np.random.Generator, reply: Message) -> None:
    arrays = reply.content.array_records.get("arrays")
    if not arrays:
        return
    name = _pick(rng, arrays)
    honest, stream = arrays[name], BytesIO()
    descr, fortran, shape = _pick(rng, DTYPES), bool(rng.integers(2)), (int(10 ** rng.integers(13)),)
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": fortran, "shape": shape})
    data = _pick(rng, [b"", rng.bytes(40), honest.data[:-1], honest.data + b"x", stream.getvalue(), b"\x80\x04garbage"])
    shape = _pick(rng, [honest.shape, (-1,), (10**12,), ()])
    arrays[name] = Array(honest.dtype, shape, _pick(rng, [honest.stype, "pickle"]), data)


def _names(rng: np.random.Generator, reply: Message) -> None:
    arrays = reply.content.array_records.get("arrays")
    if arrays:
        name = _pick(rng, arrays)
        array = arrays[name]
        if rng.integers(2):
            del arrays[name]
        if rng.integers(2):
            arrays[_pick(rng, [*NAMES, name + "x", "payload/more"])] = array


def _report(rng: np.random.Generator, reply: Message) -> None:
    report = reply.content.config_records.get("report")
    if report is not None and len(report):
        report.__dict__["_data"] = {**report, _pick(rng, [*report, *NAMES]): _pick(rng, VALUES)}


def _metric(rng: np.random.Generator, reply: Message) -> None:
    metrics = reply.content.metric_records.get("metrics")
    if metrics is not None:
        metrics.__dict__["_data"] = {**metrics, _pick(rng, [*metrics, *NAMES]): _pick(rng, VALUES)}


def _records(rng: np.random.Generator, reply: Message) -> None:
    name = _pick(rng, ["arrays", "metrics", "report"])
    if name in reply.content and rng.integers(2):
        del reply.content[name]
    else:
        reply.content[_pick(rng, ["more", name])] = _pick(rng, [ConfigRecord({"a": 1}), MetricRecord({"a": 1})])


def _metadata(rng: np.random.Generator, reply: Message) -> None:
    name = _pick(rng, ["run_id", "group_id", "src_node_id"])
    reply.metadata.__dict__[f"_{name}"] = _pick(rng, [0, -1, 2**63, "", "1.2", 1000])


def _no_content(rng: np.random.Generator, reply: Message) -> Message | str:
    failed = Message(
        Error(code=int(rng.integers(-5, 2000)), reason=_pick(rng, [None, "", "x\n" * 99, "KeyError"])), reply_to=reply
    )
    return failed if rng.integers(2) else "ValueError"


CHANGES: tuple[Callable[[np.random.Generator, Message], Message | str | None], ...] = (
    *(_tensor,) * 6,
    *(_report,) * 3,
    *(_metric,) * 2,
    _bytes,
    _names,
    _records,
    _metadata,
    _no_content,
)


def valid(result: Upload, honest: Upload) -> bool:
    found = {**result.payload, **result.buffers}
    like = {**honest.payload, **honest.buffers}
    alike = all((found[n].dtype, found[n].shape) == (t.dtype, t.shape) for n, t in like.items())
    finite = all(torch.isfinite(tensor).all() for tensor in found.values())
    variances = all((t >= 0).all() for n, t in found.items() if n.endswith(("running_var", "tracked")))
    numbers = np.isfinite(result.train_loss) and 0 <= result.seconds < np.inf
    return bool(found.keys() == like.keys() and alike and finite and variances and numbers)


def test_any_reply_is_valid_or_refused_and_the_honest_ones_stay(
    asked: tuple[Mapping[int, Asked], Mapping[int, Message]],
) -> None:
    orders, replies = asked
    expected = {r.client: r for r in Guard().judge(orders, [(c, m) for c, m in replies.items()]).used}
    assert set(expected) == {0, 1, 2}
    refused = set()
    for case in range(CASES):
        rng = np.random.default_rng(case)
        bad = spoiled(rng, deepcopy(replies[CULPRIT]))
        judged = Guard().judge(orders, [(c, bad if c == CULPRIT else m) for c, m in replies.items()])
        used = {r.client: r for r in judged.used}
        assert used.keys() | {CULPRIT} == {0, 1, 2}, (case, judged.rejected)
        for client in (0, 2):
            for name, tensor in {**expected[client].payload, **expected[client].buffers}.items():
                assert same_bits({**used[client].payload, **used[client].buffers}[name], tensor)
        if CULPRIT in used:
            assert valid(used[CULPRIT], expected[CULPRIT]), case
        else:
            ((client, reason),) = judged.rejected
            word = reason.split(":")[0]
            assert (client, word in REASONS.split()) == (CULPRIT, True), (case, reason)
            assert len(reason) < 250
            assert word != "unreadable" or bad == "ValueError"  # foreseen
            assert reason.isprintable()
            refused.add(word)
    assert len(refused) > 12
