"""Trackers that people already use, fed with each round's line of the record."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ecgr.errors import missing_extra

Tracker = Callable[[Mapping[str, Any]], None]
SCALARS = ("loss", "train_loss", "worst_client", "lr", "step_norm", "seconds", "bytes_up", "bytes_down")


def tensorboard(directory: Path) -> Tracker:
    """Scalars for TensorBoard, in ``directory/tensorboard``."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_extra("--log tensorboard", "tensorboard") from None
    writer: SummaryWriter | None = None

    def track(row: Mapping[str, Any]) -> None:
        nonlocal writer
        if writer is None:  # made at the first round: an event file must not stand in a directory that is refused
            writer = SummaryWriter(str(directory / "tensorboard"), purge_step=row["round"])
        for name, value in {**row["metrics"], **{name: row[name] for name in SCALARS}}.items():
            if value is not None:
                writer.add_scalar(name, value, row["round"])
        writer.flush()

    return track


TRACKERS: Mapping[str, Callable[[Path], Tracker]] = {"tensorboard": tensorboard}
