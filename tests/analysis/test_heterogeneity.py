"""How heterogeneous clients are, by hand."""

import numpy as np
import pytest

from ecgr.analysis.heterogeneity import FEATURES, LABELS, SIZES, Measure, gini, of_counts, of_sums


def values(measures: list[Measure]) -> dict[str, float]:
    return {measure.name: measure.value for measure in measures}


def test_label_skew_is_total_variation_weighted_by_size() -> None:
    """Pooled (3/4, 1/4). Client 0, all of class 0, is 1/4 away, client 1 3/4: (30 * 1/4 + 10 * 3/4) / 40 = 3/8."""
    assert values(of_counts([[30, 0], [0, 10]]))[LABELS] == pytest.approx(3 / 8)
    assert values(of_counts([[5, 5], [50, 50]]))[LABELS] == 0
    one_class_each = np.eye(10, dtype=int) * 7
    assert values(of_counts(one_class_each))[LABELS] == pytest.approx(0.9)


def test_clients_without_samples_do_not_count() -> None:
    assert values(of_counts([[30, 0], [0, 0], [0, 10]])) == values(of_counts([[30, 0], [0, 10]]))
    assert of_counts([[30, 0], [0, 0]]) == []


def test_size_inequality() -> None:
    """Of sizes 10 and 30 the mean absolute difference of pairs is 20 / 2 = 10, over twice the mean of 20: 1/4."""
    assert gini(np.array([30.0, 10.0])) == pytest.approx(1 / 4)
    assert values(of_counts([[4], [4], [4]])) == {SIZES: 0}


def test_feature_shift_is_in_pooled_standard_deviations() -> None:
    """-1, -1 and 1, 1: means -1 and 1, pooled 0 with deviation 1: shift 1. The constant second feature is left out."""
    x = np.array([[-1.0, 5.0], [-1.0, 5.0], [1.0, 5.0], [1.0, 5.0]])
    found = of_sums([2, 2], np.stack([x[:2].sum(0), x[2:].sum(0)]), (x**2).sum(0))
    assert values(found) == {FEATURES: pytest.approx(1)}
    assert of_sums([2, 2], np.full((2, 1), 10.0), np.full(1, 100.0)) == []


def test_what_chance_does_is_told_and_is_no_difference() -> None:
    rng = np.random.default_rng(0)
    labels, x = rng.integers(10, size=2000), rng.normal(size=(2000, 50))
    parts = np.split(rng.permutation(2000), np.cumsum([40] * 49))
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    sums = np.stack([x[part].sum(0) for part in parts])
    label, _, feature = [*of_counts(counts), *of_sums(counts.sum(1), sums, (x**2).sum(0))]
    for measure in (label, feature):
        assert measure.chance == pytest.approx(measure.value, rel=0.1)
        assert measure.scale == "as by chance"


@pytest.mark.parametrize(("value", "scale"), [(0.1, "mild"), (0.4, "moderate"), (0.78, "strong")])
def test_a_word_for_the_scale_and_what_helps(value: float, scale: str) -> None:
    measure = Measure(LABELS, value, chance=0.02)
    assert measure.scale == scale
    assert ("drift_correction" in measure.sentence) == (scale != "mild")
