"""What README says was found is what the data say."""

import pytest
from study.pages import ROOT, SKEWED, better_on, is_rising, pairs, raised, signed

pytestmark = pytest.mark.nightly
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def difference(name: str, **wanted: str) -> str:
    (pair,) = pairs(f"earlier/{name}", **wanted)
    return signed(pair["difference"])


def test_the_sentence_on_the_papers_protocol() -> None:
    higher, runs = raised("earlier/full")
    mnist, fashion = (difference("full", problem=problem) for problem in ("MNIST", "Fashion-MNIST"))
    assert f"in {higher} of {runs} paired runs ({mnist} points on MNIST, {fashion} on Fashion-MNIST)" in README
    gain, held = (
        difference("controls", problem="MNIST", method=method)
        for method in ("fedavg+ecgr", "fedavg+ecgr, server step as long as plain")
    )
    assert f"its gain of {gain} points became {held} with the server's step held" in README


def test_the_sentence_on_a_tuned_fedavg() -> None:
    assert f"shown better on {better_on('fedavg+ecgr', (*SKEWED, 'heart'))} problems" in README


def test_the_sentence_on_what_was_ahead() -> None:
    momentum, correction = "fedavgm(server_momentum=0.5)", "drift_correction"
    assert f"on {better_on(momentum)} and {better_on(correction)} problems with label skew" in README
    ahead = [
        pair
        for name in SKEWED
        for pair in pairs(f"earlier/{name}", verdict="better")
        if pair["method"] in (momentum, correction)
    ]
    ends = sorted(pair["difference"] for pair in ahead)
    rounds = sorted({pair["rounds"] for pair in ahead})
    assert f"by {ends[0]:.1f} to {ends[-1]:.1f} points after {rounds[0]} to {rounds[-1]} rounds" in README
    assert all(map(is_rising, SKEWED)), "README says that FedAvg was still improving"
