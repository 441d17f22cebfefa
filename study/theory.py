"""Whether the argument for regulation holds, run by run, as data that needs no run directory.

Names as in docs/reference/diagnostics.md: a sums up the kept steps, b the others, c = a + b, v is the regulated update,
mu the true gradient. The *assumption* is cos(a, mu) > cos(b, mu), the *conclusion* cos(v, mu) > cos(c, mu). The
repaired theorem: with <c, mu> > 0 and the assumption, the conclusion holds for every such mu exactly if
beta >= |a|^2 / |b|^2.

Only updates that regulation turned are counted. One step alone, steps that cancel, beta = 1: there v is c, "v is better
than c" is false by definition, and says nothing about the argument. Their number is given as ``unchanged``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from ecgr.analysis.collect import Run
from ecgr.analysis.labels import flat
from study.labels import labels, significant

QUANTILES = (5, 25, 50, 75, 95)
TURNED = 1e-12
"""1 - cos(v, c) beyond this is a turn; equal vectors of 32-bit numbers stay below 1e-14."""
ROUNDING = 1e-6
"""Of beta: `safe_ecgr` sets it to |a|^2 / |b|^2, which its record repeats to about this."""


@dataclass(frozen=True, slots=True)
class ClientUpdate:
    """What one client's update says; ``covered`` is None where there is no beta to compare with."""

    assumption: bool
    conclusion: bool
    squared_ratio: float
    covered: bool | None
    towards: bool


@dataclass(frozen=True, slots=True)
class Round:
    """The updates of a round that regulation turned, how many it did not, and the round's own numbers."""

    number: int
    updates: tuple[ClientUpdate, ...]
    unchanged: int
    norm_ratio: float | None
    before: float | None
    after: float | None


def theory(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each regulated run with diagnostics: how often what held, how large what was, in all and over rounds."""
    return [
        {**label, **found}
        for run, label in zip(runs, labels(runs), strict=True)
        for found in [summarise(run.rounds, flat(run.record.config).get("regulator.beta"))]
        if found is not None
    ]


def summarise(rows: Iterable[Mapping[str, Any]], beta: float | None) -> dict[str, Any] | None:
    """The numbers of one run from its rows; None if no update in it could be judged.

    ``beta`` is that of the config; where a client's row has its own, that one counts.
    """
    rounds = [_round(row, beta) for row in rows]
    updates = [update for each in rounds for update in each.updates]
    if not updates:
        return None
    return {
        "updates": len(updates),
        "unchanged": sum(each.unchanged for each in rounds),
        "counts": _counts(updates),
        "shares": _shares(updates),
        "squared_ratio": _quantiles(update.squared_ratio for update in updates),
        "norm_ratio": _quantiles(each.norm_ratio for each in rounds),
        "cosines": _cosines(rounds),
        "series": _series(rounds),
    }


def _round(row: Mapping[str, Any], beta: float | None) -> Round:
    judged = [(client, own) for client in row.get("clients", ()) if (own := _diagnostics(client))]
    judged = [(client, own) for client, own in judged if own.get("assumption_mu") is not None]
    updates = [_update(client, own, beta) for client, own in judged if _is_turned(client, own)]
    own = _diagnostics(row)
    return Round(
        number=int(row["round"]),
        updates=tuple(updates),
        unchanged=len(judged) - len(updates),
        norm_ratio=own.get("norm_ratio"),
        before=own.get("cos_before_mu"),
        after=own.get("cos_after_mu"),
    )


def _diagnostics(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among a row's diagnostics."""
    given = row.get("diagnostics")
    numbers = given.items() if isinstance(given, Mapping) else ()
    return {key: value for key, value in numbers if isinstance(value, (int, float))}


def _is_turned(client: Mapping[str, Any], own: Mapping[str, float]) -> bool:
    """Whether regulation had something to do and did it."""
    return client.get("steps", 2) > 1 and own.get("norm_b", 0) > 0 and own.get("cos_v_c", 1) < 1 - TURNED


def _update(client: Mapping[str, Any], own: Mapping[str, float], beta: float | None) -> ClientUpdate:
    ratio = (own["norm_a"] / own["norm_b"]) ** 2
    used = client.get("beta", beta)
    return ClientUpdate(
        assumption=own["assumption_mu"] > 0,
        conclusion=own.get("conclusion_mu", 0) > 0,
        squared_ratio=ratio,
        covered=None if used is None else used * (1 + ROUNDING) >= ratio,
        towards=own.get("cos_c_mu", 0) > 0,
    )


def _counts(updates: Sequence[ClientUpdate]) -> dict[str, int]:
    """How many updates had the assumption, the conclusion, both, neither."""
    pairs = [(update.assumption, update.conclusion) for update in updates]
    kinds = {"both": (True, True), "assumption_only": (True, False), "conclusion_only": (False, True)}
    return {name: pairs.count(pair) for name, pair in {**kinds, "neither": (False, False)}.items()}


def _shares(updates: Sequence[ClientUpdate]) -> dict[str, float | None]:
    """Shares of the updates, and of those among them for which something else held."""
    with_beta = [update for update in updates if update.covered is not None]
    theorem = [update for update in with_beta if update.covered and update.assumption and update.towards]
    return {
        "assumption": _share(update.assumption for update in updates),
        "conclusion": _share(update.conclusion for update in updates),
        "conclusion_given_assumption": _share(u.conclusion for u in updates if u.assumption),
        "conclusion_given_not_assumption": _share(u.conclusion for u in updates if not u.assumption),
        "assumption_given_conclusion": _share(u.assumption for u in updates if u.conclusion),
        "beta_covers": _share(bool(update.covered) for update in with_beta),
        "theorem_applies": significant(len(theorem) / len(with_beta)) if with_beta else None,
        "conclusion_given_theorem": _share(update.conclusion for update in theorem),
    }


def _cosines(rounds: Sequence[Round]) -> dict[str, Any]:
    """The server's cosine with the true gradient, over the rounds in which some update was turned."""
    both = [(e.before, e.after) for e in rounds if e.updates and e.before is not None and e.after is not None]
    return {
        "before": significant(fmean(before for before, _ in both)) if both else None,
        "after": significant(fmean(after for _, after in both)) if both else None,
        "improved": _share(after > before for before, after in both),
    }


def _series(rounds: Sequence[Round]) -> dict[str, list[Any]]:
    return {
        "rounds": [each.number for each in rounds],
        "assumption": [_share(update.assumption for update in each.updates) for each in rounds],
        "conclusion": [_share(update.conclusion for update in each.updates) for each in rounds],
        "squared_ratio": [
            significant(median(update.squared_ratio for update in each.updates)) if each.updates else None
            for each in rounds
        ],
        "norm_ratio": [significant(each.norm_ratio) for each in rounds],
        "cos_before": [significant(each.before) for each in rounds],
        "cos_after": [significant(each.after) for each in rounds],
    }


def _share(answers: Iterable[bool]) -> float | None:
    given = list(answers)
    return significant(sum(given) / len(given)) if given else None


def _quantiles(values: Iterable[float | None]) -> dict[str, float] | None:
    present = [value for value in values if value is not None]
    if not present:
        return None
    found = np.percentile(present, QUANTILES).tolist()
    return {f"q{share:02d}": significant(value) for share, value in zip(QUANTILES, found, strict=True)}
