"""Replies that must not count, each made from an honest one, with the word by which the record names what is wrong."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ConfigRecord, Error, Message, RecordDict
from numpy.typing import NDArray

from ecgr.flower.memory import Tamper

UPDATE = "payload/update"
CANARY = "canary-8c1f: patient 4711"

MORE = {"payload/more": Array(np.zeros(3, dtype=np.float32))}

Spoil = Callable[[Message, Message], Sequence[Message]]


def _with(change: Callable[[RecordDict], object]) -> Spoil:
    def spoil(order: Message, reply: Message) -> Sequence[Message]:
        change(reply.content)
        return [reply]

    return spoil


def with_array(change: Callable[[NDArray[Any]], Any], name: str = UPDATE) -> Spoil:
    """One array of a reply is changed."""

    def spoil(content: RecordDict) -> None:
        arrays = content.array_records["arrays"]
        arrays[name] = Array(np.asarray(change(arrays[name].numpy().copy())))

    return _with(spoil)


def _one(value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(array: NDArray[Any]) -> NDArray[Any]:
        array.reshape(-1)[-1] = value
        return array

    return change


def _with_report(**values: Any) -> Spoil:
    return _with(lambda content: content.config_records["report"].update(values))


def with_metric(name: str, value: float = 1.0) -> Spoil:
    """A number is set or added."""
    return _with(lambda content: content.metric_records["metrics"].update({name: value}))


def _with_metadata(**values: Any) -> Spoil:
    def spoil(order: Message, reply: Message) -> Sequence[Message]:
        reply.metadata.__dict__.update({f"_{name}": value for name, value in values.items()})
        return [reply]

    return spoil


def _raw(data: Callable[[bytes], bytes]) -> Spoil:
    """Other bytes behind the same declaration."""

    def spoil(content: RecordDict) -> None:
        arrays = content.array_records["arrays"]
        honest = arrays[UPDATE]
        arrays[UPDATE] = Array(honest.dtype, honest.shape, honest.stype, data(honest.data))

    return _with(spoil)


def _lying_header(_: bytes) -> bytes:
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)})
    return stream.getvalue()


def only(culprit: int, spoil: Spoil, group: str = "") -> Tamper:
    """One site's replies are spoilt, in one attempt or in all; the others' are left alone."""
    return lambda node, order, reply: (
        spoil(order, reply) if node == culprit and order.metadata.group_id.startswith(group) else [reply]
    )


def _failed(order: Message, reply: Message) -> Sequence[Message]:
    return [Message(Error(code=2, reason=f"<class 'ValueError'>:<'{CANARY}'>"), reply_to=order)]


RECORDED = ("accuracy", "auc", "macro_f1", "round", "state_lost", "worst_client", "rejected", "clipped", "loss")
"""Names of the record's own, which no site may give to a number."""

BAD: Mapping[str, tuple[Spoil, str]] = {
    # tried with every algorithm
    "nan": (with_array(_one(np.nan)), "nonfinite"),
    "infinite": (with_array(_one(np.inf)), "nonfinite"),
    "huge": (with_array(lambda a: a * 0 + 1e30), "norm"),
    "tensor_missing": (_with(lambda content: content.array_records["arrays"].pop(UPDATE)), "names"),
    "tensor_too_many": (_with(lambda content: content.array_records["arrays"].update(MORE)), "names"),
    "wrong_shape": (with_array(lambda a: a[:-1]), "shape"),
    "broadcastable_shape": (with_array(lambda a: a[:1]), "shape"),
    "wrong_dtype": (with_array(lambda a: a.astype(np.float64)), "dtype"),
    "no_weight": (_with_report(examples=0), "weight"),
    "negative_weight": (_with_report(examples=-59), "weight"),
    "fractional_weight": (_with_report(examples=2.5), "weight"),
    "weight_beyond_enrolment": (_with_report(examples=10**12), "weight"),
    "other_round": (_with_report(round=7), "round"),
    "other_run": (_with_report(run="0" * 16), "run"),
    "other_client": (_with_report(client=3), "client"),
    "failed": (_failed, "failed"),
    "twice": (lambda order, reply: [reply, deepcopy(reply)], "duplicate"),
    "nothing": (lambda order, reply: [], "missing"),
    # tried with one: what they break has nothing to do with the algorithm
    "near_the_largest_float": (with_array(_one(3e38)), "norm"),
    "statistics_nan": (with_array(_one(np.nan), "buffers/1.running_var"), "nonfinite"),
    "statistics_huge": (with_array(lambda a: a * 0 + 1e9, "buffers/1.running_mean"), "norm"),
    "nan_weight": (_with_report(examples=float("nan")), "weight"),
    "other_steps": (_with_report(steps=1000), "steps"),
    "kept_out_of_range": (_with_report(kept=[0, 10**6]), "kept"),
    "other_flower_run": (_with_metadata(run_id=99), "run"),
    "other_group": (_with_metadata(group_id="1.3"), "round"),
    "other_sender": (_with_metadata(src_node_id=5), "client"),
    "record_missing": (_with(lambda content: content.pop("metrics")), "records"),
    "record_too_many": (_with(lambda content: content.update(more=ConfigRecord({"a": 1}))), "records"),
    "statistics_negative": (with_array(_one(-0.1), "buffers/1.running_var"), "range"),
    "statistics_absurd": (with_array(lambda a: a * 0 + 1e12, "buffers/1.running_var"), "norm"),
    "counter_too_far": (with_array(lambda a: a + 1000, "buffers/1.num_batches_tracked"), "range"),
    "counter_negative": (with_array(lambda a: a - 1000, "buffers/1.num_batches_tracked"), "range"),
    "counter_with_fractions": (with_array(lambda a: a * 1.0, "buffers/1.num_batches_tracked"), "dtype"),
    "loss_infinite": (_with_report(train_loss=float("inf")), "nonfinite"),
    "negative_time": (_with_report(seconds=-1.0), "report"),
    **{f"metric_{name}": (with_metric(name), "metrics") for name in RECORDED},
    "garbage": (_raw(lambda data: b"\x80\x04garbage"), "encoding"),
    "cut_short": (_raw(lambda data: data[:-4]), "encoding"),
    "header_of_a_trillion": (_raw(_lying_header), "encoding"),
}
MAIN_KINDS = 18
