"""Where a round's displacements are kept: the one place that holds T x d numbers.

A store takes displacements one by one and answers two questions about them: their Gram matrix, and a linear
combination. Precision and place of storage can change behind it without a regulator noticing. What a store is called,
whether it is exact and what room it takes, it says itself.

========  ==========================  =====================================================
store     room for T steps of d       answers
========  ==========================  =====================================================
dense     4 T d bytes of memory       exact
int8      1 T d                       error 1/254 of the largest of 256 neighbours
disk      4 T d on the disk           those of dense, to the bit
auto      that of dense or disk       those of dense, to the bit
========  ==========================  =====================================================

Every one needs 8 T^2 bytes of memory besides, while the inner products are there.
"""

import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from tempfile import gettempdir
from typing import ClassVar, NamedTuple, TypeAlias

from ecgr.component import Tensor, torch
from ecgr.errors import ConfigError, EnvironmentFault

COLUMNS_PER_BLOCK = 8192  # a multiple of every block that a store encodes together
ROWS_PER_STRIP = 32  # of the lower triangle in one product, at least: narrow enough to leave out half of the work
STRIPS = 64  # at most, of many rows: few enough to read the rows a few times only
ROWS_AT_ONCE = 8  # of float64 in `combine`: a megabyte, which stays in the cache
ROWS_IN_PLACE = 512  # of a T x T matrix in one operation, whose temporary copy is then small
CHEAP_PRODUCT = 2**26  # multiply-adds; up to here (some 5 ms) a float64 product costs nothing that anybody notices


class Room(NamedTuple):
    """Bytes, by where they are taken."""

    memory: float = 0.0
    disk: float = 0.0


ROWS_PER_CHUNK = 32  # at least; more in a long round, where products of many small chunks would take their time
SPARE_NUMBERS = 2**25

_spare: list[Tensor] = []
"""The memory of the last store, at most 128 MB: touching fresh memory costs more than all the arithmetic."""


def _give_back(memory: Tensor) -> None:
    _spare[:] = [memory]


class DenseStore:
    """Chunks of rows: growing allocates one more chunk and never moves what is held.

    Other stores keep their rows in another way and answer alike.

    Args:
        size: d.
        steps: how many displacements will come, where that is known: room for them is made at once.
        like: a vector where and as precise as they are going to be; float32 on the CPU where nobody says.

    >>> steps = DenseStore(2)
    >>> steps.append(torch.tensor([3.0, 4.0])); steps.append(torch.tensor([1.0, 0.0]))
    >>> steps.gram().tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    >>> steps.combine(torch.tensor([1.0, 2.0]))
    tensor([5., 4.])
    """

    name: ClassVar[str] = "dense"
    exact: ClassVar[bool] = True
    """Whether the answers are always those of the displacements themselves, to the same bits."""
    in_place: ClassVar[bool] = True
    bytes_per_number: ClassVar[float] = 4.0
    columns_per_block: ClassVar[int] = COLUMNS_PER_BLOCK

    def __init__(self, size: int, *, steps: int | None = None, like: Tensor | None = None) -> None:
        self._size = size
        self._expected = steps or 0
        self._length = 0
        self._device = torch.device("cpu") if like is None else like.device
        self._dtype = torch.float32 if like is None else like.dtype
        self._chunks: list[Tensor] = []
        self._rows: list[Tensor] = []  # of all chunks, one by one: made together, because a step must not wait for it

    @classmethod
    def room(cls, size: int, steps: int) -> Room:
        """The bytes that ``steps`` displacements of ``size`` float32 numbers take."""
        return Room(memory=cls.bytes_per_number * size * steps)

    def __len__(self) -> int:
        """T, the number of displacements held."""
        return self._length

    def append(self, displacement: Tensor) -> None:
        """Store a copy of one displacement."""
        if displacement.shape != (self._size,):
            raise ValueError(f"expected {self._size} values, got shape {tuple(displacement.shape)}")
        self._device = displacement.device
        self._dtype = torch.promote_types(displacement.dtype, torch.float32)
        self._put(displacement)
        self._length += 1

    def new_row(self, device: "torch.device") -> Tensor | None:
        """One more row of float32, for the caller to fill at once: saves `append`'s copy; None where it cannot."""
        if not self.in_place:
            return None
        self._device = device
        row = self._next()
        self._length += 1
        return row

    def gram(self) -> Tensor:
        """All inner products, (T, T), float64 on the CPU."""
        steps = self._length
        exact = steps * steps * self._size <= CHEAP_PRODUCT
        total = torch.zeros(steps, steps, dtype=torch.float64, device=self._device)
        for start, stop in self._blocks():
            tiles = [tile.double() if exact else tile for tile in self._tiles(start, stop)]
            _add_products(total, tiles)
        _mirror(total)
        return total.cpu()

    def combine(self, coefficients: Tensor) -> Tensor:
        """``coefficients @ G``, (d,): summed in float64, one step after the other, then rounded as the steps are."""
        if coefficients.shape != (self._length,):
            given = tuple(coefficients.shape)
            raise ValueError(f"expected one coefficient for each of {self._length} steps, got shape {given}")
        weights = coefficients.to(self._device, torch.float64)
        result = torch.empty(self._size, device=self._device, dtype=self._dtype)
        # One piece of memory for all products: made anew for each, the system would have to clear it each time.
        spare = torch.empty(ROWS_AT_ONCE * 2 * self.columns_per_block, dtype=torch.float64, device=self._device)
        for start, stop in self._blocks(wider=2):
            total = torch.zeros(stop - start, dtype=torch.float64, device=self._device)
            first = 0
            for tile in self._tiles(start, stop):
                for rows in torch.split(tile, ROWS_AT_ONCE):
                    weighted = spare[: rows.numel()].view(rows.shape).copy_(rows)
                    weighted.mul_(weights[first : first + len(rows), None])
                    for row in weighted.unbind():
                        total.add_(row)
                    first += len(rows)
            result[start:stop] = total
        return result

    def _put(self, displacement: Tensor) -> None:
        """Keep a displacement of the right shape in the next row."""
        self._next().copy_(displacement)

    def _next(self) -> Tensor:
        """The row after the last one; taken once the length says so."""
        held = len(self._rows)
        if self._length == held:
            more = max(ROWS_PER_CHUNK, held // STRIPS)
            chunk = self._allocate(self._expected - held if self._expected > held else more)
            self._chunks.append(chunk)
            self._rows += chunk.unbind()
        return self._rows[self._length]

    def _allocate(self, rows: int) -> Tensor:
        if self._device.type != "cpu" or self._dtype != torch.float32 or rows * self._size > SPARE_NUMBERS:
            return torch.empty(rows, self._size, device=self._device, dtype=self._dtype)
        memory = _spare.pop() if _spare else torch.empty(0)
        if memory.numel() < rows * self._size:
            memory = torch.empty(rows * self._size)
        weakref.finalize(self, _give_back, memory).atexit = False
        return memory[: rows * self._size].view(rows, self._size)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        """All rows in order, columns ``start`` to ``stop``, as float tiles on the device that computes."""
        tiles, left = [], self._length
        for chunk in self._chunks:
            tiles.append(chunk[:left, start:stop])
            left -= len(chunk)
        return tiles

    def _blocks(self, wider: int = 1) -> Iterator[tuple[int, int]]:
        columns = wider * self.columns_per_block
        for start in range(0, self._size, columns):
            yield start, min(start + columns, self._size)


def _add_products(total: Tensor, tiles: list[Tensor]) -> None:
    """Add the products of all pairs of rows to the lower triangle of ``total``, strip by strip of columns."""
    left, width = 0, max(ROWS_PER_STRIP, len(total) // STRIPS)
    for i, tile in enumerate(tiles):
        for first in range(0, len(tile), width):
            strip = tile[first : first + width]
            columns, top = slice(left + first, left + first + len(strip)), left
            for below in (tile[first:], *tiles[i + 1 :]):
                top = max(top, columns.start)
                total[top : top + len(below), columns] += below @ strip.T
                top += len(below)
        left += len(tile)


def _mirror(square: Tensor) -> None:
    """Copy the lower triangle onto the upper one, in place: at T = 20,000 another such matrix would take 3 GB."""
    for first in range(0, len(square), ROWS_IN_PLACE):
        last = first + ROWS_IN_PLACE
        corner = square[first:last, first:last]
        corner.copy_(corner.tril() + corner.tril(-1).T)
        square[first:last, last:] = square[last:, first:last].T


def squared_norm(vector: Tensor) -> float:
    """``|v|^2`` in float64, block by block, so that no second copy of a large vector is made."""
    return sum((float(block.double().square().sum()) for block in torch.split(vector, COLUMNS_PER_BLOCK)), start=0.0)


def set_lengths_(gram: Tensor, squared: list[float]) -> Tensor:
    """Give every step of an estimated Gram matrix its exact length, in place; cosines stay.

    >>> set_lengths_(torch.tensor([[4.0, 2.0], [2.0, 4.0]]).double(), [1.0, 1.0]).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    estimated, exact = gram.diagonal(), torch.tensor(squared, dtype=torch.float64)
    scale = torch.where(estimated > 0, (exact / estimated).sqrt(), estimated)  # 0 for a step that vanished
    for rows, own in zip(torch.split(gram, ROWS_IN_PLACE), torch.split(scale, ROWS_IN_PLACE), strict=True):
        rows.mul_(own[:, None] * scale)
    gram.diagonal().copy_(exact)
    return gram


def norm(vector: Tensor) -> float:
    """``|v|`` in float64.

    >>> norm(torch.tensor([3.0, 4.0]))
    5.0
    """
    return sqrt(squared_norm(vector))


RESIDENT = 2**23  # bytes read before their pages are given back


class DiskStore(DenseStore):
    """The rows of a `DenseStore`, in chunks that lie in a file below ``$TMPDIR``.

    >>> steps = DiskStore(2)
    >>> steps.append(torch.tensor([3.0, 4.0]))
    >>> steps.gram().tolist()
    [[25.0]]
    """

    name: ClassVar[str] = "disk"
    in_place: ClassVar[bool] = False  # through `append` the recorder gets by with one vector beside the model

    def __init__(self, size: int, *, steps: int | None = None, like: Tensor | None = None) -> None:
        super().__init__(size, steps=steps, like=like)
        self._maps: list[mmap.mmap] = []
        self._end = 0
        self._touched = 0
        with _disk_errors("a temporary file"):
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with this store
        weakref.finalize(self, self._file.close)

    @classmethod
    def room(cls, size: int, steps: int) -> Room:
        return Room(disk=cls.bytes_per_number * size * steps)

    def _next(self) -> Tensor:
        self._give_back(self._size * self._dtype.itemsize)  # the row before this one is filled by now
        return super()._next()

    def _allocate(self, rows: int) -> Tensor:
        length = rows * self._size * self._dtype.itemsize
        padded = -(-length // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        with _disk_errors(f"{gigabytes(padded)} more"):
            if hasattr(os, "posix_fallocate"):  # or writing to a full disk would kill us
                os.posix_fallocate(self._file.fileno(), self._end, padded)
            else:  # macOS
                self._file.truncate(self._end + padded)
        mapped = mmap.mmap(self._file.fileno(), padded, offset=self._end)
        self._maps.append(mapped)
        self._end += padded
        return torch.frombuffer(mapped, dtype=self._dtype, count=rows * self._size).view(rows, self._size)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        self._give_back(self._length * (stop - start) * self._dtype.itemsize)
        return [tile.to(self._device) for tile in super()._tiles(start, stop)]

    def _give_back(self, touched: int) -> None:
        """Count bytes that are about to be touched; let go of the pages of those before them when they are many."""
        if self._touched + touched > RESIDENT:
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)  # of a shared mapping: what was written stays in the file
            self._touched = 0
        self._touched += touched


@contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"store disk: cannot make {what} below $TMPDIR ({error.strerror or error});"
            " set TMPDIR to a larger disk, or use the store int8"
        ) from None


GROUP = 256  # numbers of an int8 row that share one scale
DECODED_AT_ONCE = 1024  # columns: a decoded block of all rows is small beside what encoding saves
ENCODED_AT_ONCE = 2**16  # a multiple of GROUP; keeps the temporary copies of a long row small


class Int8Store(DenseStore):
    """Rows as int8 with one float32 scale for every 256 numbers: error at most 1/254 of the group's largest number.

    Each displacement's exact length is kept beside it, which leaves the choice of steps as it would be without rounding
    (0 of 1,334 choices changed, against 1 with the lengths of the rounded numbers). What is not finite stays
    recognisable, so that a diverged round is found out and not averaged away.

    >>> steps = Int8Store(2)
    >>> steps.append(torch.tensor([127.0, 3.3]))
    >>> steps.combine(torch.tensor([1.0]))
    tensor([127.,   3.])
    """

    name: ClassVar[str] = "int8"
    exact: ClassVar[bool] = False
    in_place: ClassVar[bool] = False
    columns_per_block: ClassVar[int] = DECODED_AT_ONCE
    bytes_per_number: ClassVar[float] = 1.0 + 4.0 / GROUP

    def __init__(self, size: int, *, steps: int | None = None, like: Tensor | None = None) -> None:
        super().__init__(size, steps=steps, like=like)
        self._squared: list[float] = []
        self._scales = DenseStore(-(-self._size // GROUP), steps=self._expected)

    def append(self, displacement: Tensor) -> None:
        super().append(displacement)
        self._squared.append(squared_norm(displacement))

    def gram(self) -> Tensor:
        return set_lengths_(super().gram(), self._squared)

    def _allocate(self, rows: int) -> Tensor:
        return torch.empty(rows, self._size, dtype=torch.int8, device=self._device)

    def _put(self, displacement: Tensor) -> None:
        codes, scales = self._next(), torch.empty(self._scales._size, device=displacement.device)
        for start in range(0, self._size, ENCODED_AT_ONCE):
            piece = displacement[start : start + ENCODED_AT_ONCE].float()
            groups = torch.nn.functional.pad(piece, (0, -len(piece) % GROUP)).view(-1, GROUP)
            scale = groups.abs().amax(dim=1) / 127
            divisor = torch.where(scale == 0, 1.0, scale)  # a group of zeros; infinities and NaN stay in the scale
            whole_numbers = (groups / divisor[:, None]).round_().nan_to_num_(0.0, 0.0, 0.0)  # from -127 to 127
            codes[start : start + len(piece)] = whole_numbers.view(-1)[: len(piece)]
            scales[start // GROUP :][: len(scale)] = scale
        self._scales.append(scales)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        scales = self._scales._tiles(start // GROUP, -(-stop // GROUP))
        tiles = [tile.float() for tile in super()._tiles(start, stop)]
        whole = (stop - start) // GROUP
        for tile, scale in zip(tiles, scales, strict=True):
            tile[:, : whole * GROUP].view(len(tile), whole, GROUP).mul_(scale[:, :whole, None])
            tile[:, whole * GROUP :].mul_(scale[:, whole:])
        return tiles


USUAL_STEPS = 256  # assumed where nobody says how many there will be


class Auto:
    """``dense`` where it is small, else ``disk``, which gives the same bits."""

    name = "auto"
    exact = True

    def room(self, size: int, steps: int) -> Room:
        """None of its own: it looks for a store that fits."""
        return Room()

    def __call__(self, size: int, *, steps: int | None = None, like: Tensor | None = None) -> DenseStore:
        numbers, device = (size, "cpu") if like is None else (size * like.element_size() // 4, like.device)
        return pick(numbers, steps, device=device)(size, steps=steps, like=like)


Kind: TypeAlias = type[DenseStore] | Auto


def pick(size: int, steps: int | None, *, device: "torch.device | str" = "cpu") -> type[DenseStore]:
    """The store that ``auto`` stands for.

    Small means: fits into half of the free memory when as many processes as there are cores hold one.

    >>> pick(61_706, 47).name
    'dense'
    """
    count, processes = steps or USUAL_STEPS, os.cpu_count() or 1
    if not shortage(DenseStore, size, count, 2 * processes, device):
        return DenseStore
    if not shortage(DiskStore, size, count, processes, device):
        return DiskStore
    raise ConfigError(
        f"store: {describe(DenseStore, size, count)} fit neither in memory ({gigabytes(free_memory(device))} free)"
        f" nor on the disk below {gettempdir()} ({gigabytes(free_disk())} free); take the store int8, set TMPDIR to a"
        " larger disk, or take fewer steps in a round (larger batches, fewer local epochs)"
    )


STORES: Mapping[str, Kind] = {kind.name: kind for kind in (DenseStore, Int8Store, DiskStore, Auto())}
"""By name: how to make an empty store for displacements of a given size, and what it says of itself."""


# Room: asked for before training starts, so that a store which is too large ends in one line


UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
KEPT_FREE = 1.1  # what is asked for beyond the numbers themselves


def check_room(name: str, size: int, steps: int, stores: int, device: "torch.device | str" = "cpu") -> None:
    """Refuse a store that cannot hold its steps and their inner products; the message names those that can.

    >>> check_room("dense", 61_706, 47, stores=1)
    """
    kind = STORES[name]
    short = shortage(kind, size, steps, stores, device)
    if short is None:
        return
    fit = [k.name for k in STORES.values() if k.name != "auto" and not shortage(k, size, steps, stores, device)]
    held = f"{describe(kind, size, steps)}{f' for each of {stores} processes' if stores > 1 else ''}"
    advice = ", ".join(fit) or "nothing; take fewer steps in a round (federation.batch_size, federation.local_epochs)"
    if short == "memory":
        raise ConfigError(
            f"run.store: {name!r} would hold {held} in memory ({gigabytes(free_memory(device))} free);"
            f" what fits: {advice}"
        )
    raise EnvironmentFault(
        f"run.store: {held} do not fit on the disk below {gettempdir()} ({gigabytes(free_disk())} free);"
        f" set TMPDIR to a larger one, or use what fits: {advice}"
    )


def shortage(kind: Kind, size: int, steps: int, stores: int, device: "torch.device | str" = "cpu") -> str | None:
    """Where ``stores`` stores, with the T x T matrix of each, have not room enough: in ``memory``, on the ``disk``."""
    rows = kind.room(size, steps)
    if KEPT_FREE * stores * (rows.memory + gram_bytes(steps)) > free_memory(device):
        return "memory"
    return "disk" if KEPT_FREE * stores * rows.disk > free_disk() else None


def describe(kind: Kind, size: int, steps: int) -> str:
    """What is to be held, for a person to read.

    >>> describe(DenseStore, 1000, 20_000)
    '20,000 steps of 1,000 numbers (80.0 MB) and their 20,000 x 20,000 inner products (3.2 GB)'
    """
    rows = gigabytes(sum(kind.room(size, steps)))
    products = f"{steps:,} x {steps:,} inner products ({gigabytes(gram_bytes(steps))})"
    return f"{steps:,} steps of {size:,} numbers ({rows}) and their {products}"


def gram_bytes(steps: int) -> float:
    """What the inner products take: regulating makes one T x T matrix of float64, and never a second one."""
    return 8.0 * steps * steps


def gigabytes(count: float) -> str:
    """Bytes for a person to read.

    >>> gigabytes(2.5e9), gigabytes(3e5), gigabytes(2048)
    ('2.5 GB', '0.3 MB', '2.0 kB')
    """
    unit, name = next(((unit, name) for unit, name in UNITS if count >= unit / 10), UNITS[-1])
    return f"{count / unit:.1f} {name}"


def free_memory(device: "torch.device | str" = "cpu") -> int:
    """Bytes that can still be had where ``device`` computes."""
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: all there is must do
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = Path("/sys/fs/cgroup")
    try:  # what a container leaves of the machine's memory
        left = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no container, or "max"
        return found
    return max(0, min(found, left))


def free_disk() -> int:
    """Bytes that can still be written below ``$TMPDIR``."""
    return shutil.disk_usage(gettempdir()).free
