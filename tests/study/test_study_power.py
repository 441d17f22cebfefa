"""The figure of power draws the rule that decides."""

import numpy as np
import pytest
from study.power import judge_all

from ecgr.analysis.comparison import compare
from ecgr.analysis.metrics import RunSummary


@pytest.mark.parametrize(("seeds", "rows"), [(5, 1), (6, 1), (8, 3), (10, 5)])
def test_many_comparisons_at_once_get_the_verdicts_of_each(seeds: int, rows: int) -> None:
    rng = np.random.default_rng(seeds)
    differences = rng.normal(rng.choice([0.0, 0.004, -0.01], (30, rows, 1)), 0.004, (30, rows, seeds))
    judged = judge_all(differences, margin=0.005)
    for number, comparison in enumerate(differences):
        runs = [RunSummary("fedavg", "none", seed, (0.5,)) for seed in range(seeds)]
        runs += [
            RunSummary("fedavg", f"row {row}", seed, (0.5 + float(comparison[row, seed]),))
            for row in range(rows)
            for seed in range(seeds)
        ]
        for row, pair in enumerate(compare(runs).pairs):
            found = {name for name in ("better", "worse", "equivalent") if getattr(judged, name)[number, row]}
            assert found == ({pair.verdict} & {"better", "worse", "equivalent"})
