"""Run directories as runs leave them, made in no time: the record's own format, made-up numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ecgr.runs.record import RunRecord, RunWriter, to_json
from ecgr.simulation.kept import Kept, pack_kept

CLASSES = ("cat", "dog", "owl")


def write_run(
    directory: Path,
    *,
    algorithm: str = "fedavg",
    regulator: str = "ecgr",
    seed: int = 0,
    rounds: int = 6,
    planned: int | None = None,
    clients: int = 3,
    steps: int = 8,
    gain: float = 0.0,
    classes: Sequence[str] = CLASSES,
    name: str = "made up",
    data: str = "digits",
    digest: str = "0" * 64,
    notes: Sequence[str] = (),
    reasons: Sequence[str] = (),
    config: Mapping[str, Mapping[str, Any]] | None = None,
    finished: bool = True,
    metric: str = "accuracy",
    larger_is_better: bool = True,
    step_norm: float = 0.5,
    noise: int = 0,
    method: str | None = None,
) -> RunRecord:
    """Write one run, whose accuracies rise towards 0.8 + ``gain``, with noise of the seed, and of ``noise`` if given.

    Another ``metric`` than accuracy has the same numbers, without a unit if smaller ones are better.

    Client i takes ``steps + i`` steps. Round i rejects client 0 for the ith of ``reasons``.
    """
    rng = np.random.default_rng([seed, noise] if noise else seed)
    described = {"name": metric, "unit": "share" if larger_is_better else "", "larger_is_better": larger_is_better}
    directory.mkdir(parents=True)
    writer = RunWriter(directory)
    writer.begin(
        {
            "name": name,
            "method": method or algorithm + (f"+{regulator}" if regulator != "none" else ""),
            **({} if metric == "accuracy" else {"metrics": [described]}),
            "key": f"{algorithm}-{regulator}"[:12],
            "config": _config(algorithm, regulator, seed, planned or rounds, clients, name, data, config or {}),
            "data": {data: digest},
            "versions": {"ecgr": "1.0", "torch": "2.10", "numpy": "2.0"},
            "created": "2030-01-02T03:04:05+00:00",
            "machine": {"python": "3.12.0", "system": "Linux", "processor": "x86_64", "cores": 2},
            "notes": list(notes),
            "classes": list(classes),
            "partition": np.random.default_rng(seed).integers(0, 99, (clients, len(classes))).tolist(),
        }
    )
    rows: list[bytes] = []
    kept: list[Kept] = []
    for number in range(1, rounds + 1):
        share = (0.8 + gain) * (1 - np.exp(-number / 3)) + rng.normal(0, 0.01)
        row = {
            "round": number,
            **_values(metric, float(np.clip(share, 0, 1))),
            "loss": float(2.3 * np.exp(-number / 4)),
            "train_loss": float(2.2 * np.exp(-number / 4)),
            "worst_client": float(np.clip(share - 0.2, 0, 1)),
            "lr": 0.01,
            "seconds": float(1 + 0.1 * (regulator != "none") + rng.uniform(0, 0.01)),
            "examples": 100,
            "bytes_up": 2_000_000,
            "bytes_down": 3_000_000,
            "step_norm": step_norm,
            "clients": [{"client": c, "examples": 30, "steps": steps + c, "seconds": 0.3} for c in range(clients)],
            "rejected": [{"client": 0, "reason": reason} for reason in reasons[number - 1 : number]],
        }
        rows.append(to_json(row) + b"\n")
        if regulator != "none":
            kept += [_kept(rng, number, client, steps + client) for client in range(clients)]
    (directory / "rounds.jsonl").write_bytes(b"".join(rows))  # all at once: the writer makes every round durable
    if kept:
        arrays: dict[str, Any] = dict(pack_kept(kept))
        np.savez_compressed(directory / "steps.npz", **arrays)
    if finished:
        writer.finish({"w": np.zeros(1, dtype=np.float32)})
    return RunRecord.open(directory)


def write_comparison_runs(directory: Path, seeds: int = 3, gain: float = 0.0, **more: Any) -> list[RunRecord]:
    """Paired runs of the baseline and of ecgr."""
    return [
        write_run(
            directory / f"{regulator}-{seed}", regulator=regulator, seed=seed, gain=gain * (regulator != "none"), **more
        )
        for regulator in ("none", "ecgr")
        for seed in range(seeds)
    ]


def _values(metric: str, value: float) -> dict[str, Any]:
    return {"accuracy": value} if metric == "accuracy" else {"metrics": {metric: value}}


def _kept(rng: np.random.Generator, number: int, client: int, steps: int) -> Kept:
    """Half of the steps, late ones rather than early ones."""
    odds = np.arange(1, steps + 1) / np.arange(1, steps + 1).sum()
    kept = rng.choice(steps, size=max(1, steps // 2), replace=False, p=odds)
    return Kept(number, client, steps, tuple(kept.tolist()))


def _config(
    algorithm: str,
    regulator: str,
    seed: int,
    rounds: int,
    clients: int,
    name: str,
    data: str,
    more: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    config: dict[str, dict[str, Any]] = {
        "data": {"name": data},
        "partition": {"name": "dirichlet", "alpha": 0.1, "clients": clients},
        "model": {"name": "lenet"},
        "algorithm": {"name": algorithm},
        "regulator": {"name": regulator, **({} if regulator == "none" else {"beta": 0.2})},
        "optimizer": {"name": "sgd", "lr": 0.01},
        "federation": {"rounds": rounds, "batch_size": 16},
        "run": {"seed": seed, "name": name},
    }
    return {section: {**config.get(section, {}), **more.get(section, {})} for section in {**config, **more}}
