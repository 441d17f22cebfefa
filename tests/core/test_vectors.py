"""Flat vectors and back, means in a stated order, and statistics that are never extrapolated."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ecgr.core.vectors import ParamSpec, merge_buffers, read_buffers, weighted_mean
from support.problems import same_bits, small_net


class Tied(nn.Module):
    """Two layers with one weight, a frozen layer, a scalar parameter, an empty one, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(3, 2)
        for parameter in self.frozen.parameters():
            parameter.requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.empty = nn.Parameter(torch.zeros(0, 4))
        self.register_buffer("scratch", torch.ones(2), persistent=False)
        self.register_buffer("counter", torch.tensor(3))


def test_tied_weights_count_once_and_frozen_ones_not_at_all() -> None:
    spec = ParamSpec.of(Tied())
    assert spec.names == ("scale", "empty", "first.weight", "second.bias")
    assert spec.size == 1 + 0 + 9 + 3


@given(st.integers(0, 2**31))
def test_writing_and_reading_are_inverse(seed: int) -> None:
    model = Tied()
    spec = ParamSpec.of(model)
    flat = torch.from_numpy(np.random.default_rng(seed).standard_normal(spec.size)).float()
    frozen, buffers = model.frozen.weight.clone(), read_buffers(model)
    spec.write(flat, model)
    assert same_bits(spec.read(model), flat)
    assert torch.equal(model.second.weight, model.first.weight)
    assert torch.equal(model.frozen.weight, frozen)
    assert all(torch.equal(value, buffers[name]) for name, value in read_buffers(model).items())
    again = torch.cat([piece.reshape(-1) for piece in spec.named(flat).values()])
    assert same_bits(again, flat)


def test_the_flat_vector_does_not_depend_on_the_memory_format() -> None:
    model = small_net()
    spec = ParamSpec.of(model)
    flat = spec.read(model)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert same_bits(spec.read(model), flat)
    spec.write(flat.flip(0), model)
    assert same_bits(spec.read(model), flat.flip(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_parameters_of_any_float_dtype_are_read_in_float32_or_wider(dtype: torch.dtype) -> None:
    model = nn.Linear(2, 2).to(dtype)
    spec = ParamSpec.of(model)
    values = torch.tensor([0.5, -1.25, 3.0, 0.0, 2.0, -0.75])
    spec.write(values, model)
    assert model.weight.dtype == dtype
    assert spec.read(model).dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(spec.read(model), values)


def test_buffers_are_kept_apart_and_those_that_are_not_saved_are_not_exchanged() -> None:
    assert set(read_buffers(small_net())) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert set(read_buffers(Tied())) == {"counter"}
    assert merge_buffers([{}, {}], [1, 2]) == {}


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 1000)), min_size=1, max_size=8))
def test_the_weighted_mean_is_the_sum_of_shares(entries: list[tuple[int, int]]) -> None:
    vectors = [torch.tensor([float(value), -float(value)]) for value, _ in entries]
    weights = [weight for _, weight in entries]
    expected = sum(v * w for v, w in entries) / sum(weights)
    mean = weighted_mean(vectors, weights)
    assert mean.dtype == torch.float32
    assert mean.tolist() == pytest.approx([expected, -expected], rel=1e-6, abs=1e-30)


def test_the_mean_of_large_opposite_updates_is_summed_in_float64() -> None:
    """In float32, 2^24 + 1 - 2^24 is 0; the mean of the three is 1/3."""
    vectors = [torch.tensor([2.0**24]), torch.tensor([1.0]), torch.tensor([-(2.0**24)])]
    assert float(weighted_mean(vectors, [1, 1, 1])) == pytest.approx(1 / 3)


values = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(values, st.integers(1, 10**6)), min_size=1, max_size=6),
    st.lists(st.integers(0, 2**40), min_size=6, max_size=6),
)
def test_merged_statistics_lie_between_the_clients_smallest_and_largest(
    entries: list[tuple[float, int]], counters: list[int]
) -> None:
    """Also where rounding of the mean would step outside, and for numbers up to the largest float32."""
    clients = [
        {"mean": torch.tensor([value, 1.0]), "batches": torch.tensor(counters[i])}
        for i, (value, _) in enumerate(entries)
    ]
    merged = merge_buffers(clients, [weight for _, weight in entries])
    lowest, highest = min(value for value, _ in entries), max(value for value, _ in entries)
    assert lowest <= float(merged["mean"][0]) <= highest
    assert float(merged["mean"][1]) == 1.0
    assert merged["mean"].dtype == torch.float32
    assert int(merged["batches"]) == max(counters[: len(entries)])


def test_merged_statistics_of_float64_do_not_leave_the_range_by_rounding() -> None:
    """0.1 + 0.1 + 0.1 is 0.30000000000000004 in float64, and a third of it more than 0.1."""
    clients = [{"mean": torch.tensor([0.1], dtype=torch.float64)} for _ in range(3)]
    assert merge_buffers(clients, [1, 1, 1])["mean"].item() == 0.1


def test_what_cannot_be_a_vector_is_refused_by_name() -> None:
    spec, phase = ParamSpec.of(nn.Linear(2, 2)), nn.Module()
    phase.register_parameter("phase", nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    refused: list[tuple[Callable[[], object], str]] = [
        *(
            (partial(spec.write, torch.zeros(shape), nn.Linear(2, 2)), "expected a vector of 6")
            for shape in (5, (6, 1))
        ),
        (lambda: spec.read(nn.Linear(2, 2, bias=False)), "lacks bias"),
        (lambda: spec.read(nn.Linear(3, 2)), "weight has shape"),
        (lambda: ParamSpec.of(nn.Linear(1, 1).requires_grad_(False)), "no trainable parameter"),
        (lambda: ParamSpec.of(phase), "phase"),
    ]
    for act, says in refused:
        with pytest.raises(ValueError, match=says):
            act()
