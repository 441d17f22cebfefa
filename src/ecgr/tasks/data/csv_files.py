"""Tables in CSV files: columns for features, target and client, or a folder with one file a client."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ecgr.component import component
from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data.columns import Category, Gap, encode, gap, rows_with_gaps, unknown_column
from ecgr.tasks.data.dataset import Dataset
from ecgr.tasks.data.image_folder import Share
from ecgr.tasks.data.locate import own_path
from ecgr.tasks.data.official import Report
from ecgr.tasks.data.preparation import Mask, Missing, Numbers, Scope, by_scope, filled, holdout, standardised
from ecgr.tasks.data.tables import Table, join, parse_table, read_bytes
from ecgr.tasks.data.targets import Kind, Targets, column_targets
from ecgr.tasks.samples import Samples

TextList = Annotated[tuple[str, ...], Field(strict=False)]
SplitSeed = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of all files, and for each the name that its file gives it: a client, or "train" or "test"."""

    table: Table
    file_names: NDArray[np.str_]
    named: str | None
    files: Mapping[str, str]

    def take(self, indices: NDArray[np.int64]) -> "Rows":
        """The rows at ``indices``."""
        return Rows(self.table.take(indices.tolist()), self.file_names[indices], self.named, self.files)


@component
class Csv:
    """Your own table: a CSV file, a folder with one file a client, or one with train.csv and test.csv."""

    root: str | None = None
    files: str = "*.csv"
    separator: str = ","
    columns: TextList = ()
    target: str | None = None
    kind: Kind = "auto"
    above: float | None = None
    client: str | None = None
    features: TextList = ()
    categorical: TextList = ()
    missing: Missing = "refuse"
    missing_values: TextList = ()
    standardise: bool = True
    scope: Scope = "all"
    test_share: Share = 0.2
    split_seed: SplitSeed = 0

    def folder(self) -> Path:
        """The file, or the folder of files."""
        return own_path("csv", self.root, "a CSV file, or a folder with one a client")

    def load(self) -> Dataset:
        """Read, split, fill and scale the rows."""
        rows = self._rows()
        is_gap = gap(self.missing_values)
        target, client, features, categories = self._columns(rows.table.columns)
        rows, dropped = self._without_gaps(rows, [*features, target, *([client] if client else [])], is_gap)
        targets = column_targets(rows.table.column(target), self.kind, self.above)
        clients = np.array(rows.table.column(client).texts) if client else rows.file_names
        encoded = encode(rows.table, features, categories, is_gap)
        test = self._test_rows(rows, clients, targets)
        inputs = by_scope(clients, self.scope, self._prepare)(encoded.values, ~test)
        inputs = np.where(encoded.numbers, inputs, encoded.values).astype(np.float32)
        known = client is not None or rows.named == "client"

        def half(mask: Mask) -> Samples:
            return Samples(inputs[mask], targets.values[mask], clients[mask] if known else None)

        return Dataset(
            train=half(~test),
            test=half(test),
            shape={"features": inputs.shape[1], **targets.shape},
            loss=targets.loss,
            metrics=targets.metrics,
            classes=targets.classes,
            files=rows.files,
            notes=(*dropped, *self._note(encoded.gaps)),
        )

    def assess(self) -> Report:
        """Read every row; with a target named, prepare them too."""
        if self.target is None:
            rows = self._rows()
            return Report("csv", "whole", ("whole: every row could be read",), {"rows": len(rows.table)})
        dataset = self.load()
        return Report("csv", "whole", ("whole: every row could be read", *dataset.notes), dataset.counts)

    def _rows(self) -> Rows:
        if len(self.separator) != 1:
            raise ConfigError(f"data.separator: {self.separator!r} does not fit; give one character")
        if self.files.count("*") != 1 or "/" in self.files:
            raise ConfigError(f"data.files: {self.files!r} does not fit; give a name with one * for the client")
        path = self.folder()
        before, _, after = self.files.partition("*")
        paths = sorted(path.glob(self.files)) if path.is_dir() else [path]
        if not paths:
            raise DataError(f"csv: no {self.files} in {path}; data.files says how the files are called")
        names = [file.name[len(before) : len(file.name) - len(after)] for file in paths]
        named = None if not path.is_dir() else "part" if names == ["test", "train"] else "client"
        contents = {file: read_bytes(file) for file in paths}
        tables = [parse_table(file, content, self.separator, self.columns) for file, content in contents.items()]
        return Rows(
            join(tables),
            np.repeat(names if named else "", [len(table) for table in tables]),
            named,
            {file.name: sha256(content).hexdigest() for file, content in contents.items()},
        )

    def _columns(self, columns: tuple[str, ...]) -> tuple[str, str | None, list[str], dict[str, Category]]:
        """Target, client, features, and those of them that are categories."""
        if self.target is None:
            raise ConfigError(f"data.target: csv needs the column to predict; there are: {', '.join(columns)}")
        given = [("data.target", self.target), *(("data.features", name) for name in self.features)]
        given += [("data.client", self.client)] if self.client is not None else []
        wrong = [unknown_column(key, name, columns) for key, name in given if name not in columns]
        if wrong:
            raise ConfigError(*wrong)
        features = list(self.features) or [name for name in columns if name not in (self.target, self.client)]
        if self.target in features or not features:
            raise ConfigError(f"data.features: {', '.join(features) or 'nothing'} to predict {self.target!r} from")
        categories = {category.column: category for category in (Category.of(t, columns) for t in self.categorical)}
        for name in categories:
            if name not in features:
                raise ConfigError(f"data.categorical: {name!r} is not one of the features")
        return self.target, self.client, features, categories

    def _without_gaps(self, rows: Rows, names: list[str], is_gap: Gap) -> tuple[Rows, tuple[str, ...]]:
        """The rows that can be used under the rule for missing values, and a note where some cannot."""
        fillable = self.missing in ("mean", "median")
        looked_at = [name for name in names if not fillable or name in (self.target, self.client)]
        found = list(rows_with_gaps([rows.table.column(name) for name in looked_at], is_gap))
        if not found:
            return rows, ()
        if self.missing != "drop":
            rule = "" if fillable else ', "mean" or "median" fill it in'
            raise DataError(f'{found[0][1]}: a value is missing; data.missing = "drop" leaves the row out{rule}')
        kept = np.setdiff1d(np.arange(len(rows.table)), [index for index, _ in found])
        if not len(kept):
            raise DataError(f"csv: a value is missing in every row; first {found[0][1]}")
        return rows.take(kept), (f"{len(found):,} of {len(rows.table):,} rows left out: a value is missing",)

    def _test_rows(self, rows: Rows, clients: NDArray[np.str_], targets: Targets) -> Mask:
        if rows.named == "part":
            test: Mask = rows.file_names == "test"
        else:
            test = holdout(clients, targets.values, self.test_share, self.split_seed)
        if test.all() or not test.any():
            raise DataError(f"csv: {(~test).sum()} rows to train on, {test.sum()} to test on; see data.test_share")
        return test

    def _note(self, gaps: int) -> tuple[str, ...]:
        if not gaps:
            return ()
        whose = "all clients'" if self.scope == "all" else "the client's own"
        return (f"{gaps:,} missing values: the {self.missing} of {whose} training rows, or no category",)

    def _prepare(self, numbers: Numbers, train: Mask) -> Numbers:
        whole = filled(numbers, train, self.missing) if np.isnan(numbers).any() else numbers
        return standardised(whole, train) if self.standardise else whole
