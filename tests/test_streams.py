"""Random streams: the same for the same place, unrelated for any other, and never the global generators."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecgr.streams import stream, torch_seed

places = st.tuples(
    st.integers(0, 2**63 - 1),
    st.sampled_from(["batches", "client", "partition", "weights"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)


@given(places)
def test_a_stream_depends_on_its_place_alone(place: tuple[int, str, int, int]) -> None:
    assert stream(*place).integers(2**62, size=4).tolist() == stream(*place).integers(2**62, size=4).tolist()
    assert torch_seed(*place) == torch_seed(*place)
    assert 0 <= torch_seed(*place) < 2**63


@given(places, places)
def test_streams_of_different_places_differ(one: tuple[int, str, int, int], other: tuple[int, str, int, int]) -> None:
    equal = stream(*one).integers(2**62, size=4).tolist() == stream(*other).integers(2**62, size=4).tolist()
    assert equal == (one == other)


def test_neighbouring_places_are_all_different() -> None:
    """Ten seeds, four purposes, ten rounds, ten clients, with and without a position: no two alike."""
    draws = {
        int(stream(seed, purpose, *position).integers(2**62))
        for seed in range(10)
        for purpose in ("batches", "client", "participants", "weights")
        for position in [(), *((t,) for t in range(10)), *((t, c) for t in range(10) for c in range(10))]
    }
    assert len(draws) == 10 * 4 * (1 + 10 + 100)


def test_streams_look_independent() -> None:
    """Correlation of the first normals of 2,000 neighbouring clients: five deviations of zero are 0.11."""
    pairs = np.array([stream(0, "batches", 0, client).standard_normal(2) for client in range(2000)])
    following = np.corrcoef(pairs[:-1, 0], pairs[1:, 0])[0, 1]
    assert abs(following) < 0.11
    assert abs(np.corrcoef(pairs[:, 0], pairs[:, 1])[0, 1]) < 0.11


def test_a_stream_is_known_by_value() -> None:
    """Recorded numbers must not move under a new version of the package: this is a change of numerics."""
    assert stream(0, "batches", 3, 1).integers(100, size=4).tolist() == [67, 96, 50, 54]
    assert torch_seed(42, "weights") == 1_300_684_606_898_028_411


def test_drawing_leaves_the_global_generators_alone() -> None:
    before = torch.random.get_rng_state().clone()
    torch_seed(0, "client", 1, 2)
    assert torch.equal(torch.random.get_rng_state(), before)
