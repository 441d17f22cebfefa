"""Select on a sketch, then train again: O(d + T k) memory, about twice the compute, exact but for the selection.

While training, each displacement is reduced to k numbers (CountSketch: Charikar, Chen, Farach-Colton, 2002) and its
exact length. Inner products of sketches estimate those of the displacements, with a relative error of about
``1 / sqrt(k)``; that is enough to choose steps. The chosen combination is then summed up, to the same bits as from
stored steps, while the same training runs once more.
"""

from typing import ClassVar

from ecgr.component import Tensor, torch
from ecgr.core.stores.blocked import StoreBase, per_step, set_lengths_, squared_norm
from ecgr.core.stores.dense import DenseStore
from ecgr.core.stores.protocol import Room

WIDTH, WIDTH_OF_LARGE, LARGE = 1024, 4096, 2**18
"""k, and from how many numbers on it is the larger one: there, sketches are small beside the model in any case."""

SEED = 2601_03584  # any fixed number: a sketch must be the same for all steps, processes and runs
BLOCK = 2**16
SAME_STEP = 1e-2  # how far, relatively, a step's squared length may be off: a GPU does not repeat itself to the bit
ADVICE = "both must see the same batches and draw the same random numbers"


class CountSketch:
    """A random linear map from d to k numbers that keeps inner products in expectation.

    Each coordinate is added to one of k sums with a random sign. Sign and sum are drawn together, as one of 2k sums of
    which the second half counts negative: so the displacement is read once and nothing is multiplied.
    """

    def __init__(self, size: int, width: int, device: "torch.device") -> None:
        generator = torch.Generator().manual_seed(SEED)
        self._places = torch.randint(0, 2 * width, (size,), generator=generator, dtype=torch.int32).to(device)
        self._width = width

    def __call__(self, vector: Tensor) -> Tensor:
        """The sketch of ``vector``, (k,)."""
        sums = torch.zeros(2 * self._width, device=vector.device).index_add_(0, self._places, vector)
        return sums[: self._width] - sums[self._width :]


class SketchStore(StoreBase):
    """Sketches and lengths of the displacements, and a way to see the displacements again.

    >>> seen = [torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0])]
    >>> steps = SketchStore(2, replay=lambda visit: [visit(step) for step in seen] and None)
    >>> for step in seen: steps.append(step)
    >>> steps.gram().diagonal().tolist()
    [25.0, 1.0]
    >>> steps.combine(torch.tensor([1.0, 2.0]))
    tensor([5., 4.])
    """

    name: ClassVar[str] = "replay"
    exact: ClassVar[bool] = False
    needs_replay: ClassVar[bool] = True

    def _set_up(self) -> None:
        self._sketches = DenseStore(_width(self._size), steps=self._expected)
        self._squared: list[float] = []
        self._made: CountSketch | None = None

    @classmethod
    def room(cls, size: int, steps: int) -> Room:
        """The sketches, in memory."""
        return DenseStore.room(_width(size), steps)

    def _put(self, displacement: Tensor) -> None:
        self._sketches.append(self._sketch(displacement.float()))
        self._squared.append(squared_norm(displacement))

    def gram(self) -> Tensor:
        """Estimated inner products, each step with its exact length: the cosines of the sketches, times the lengths."""
        return set_lengths_(self._sketches.gram(), self._squared)

    def combine(self, coefficients: Tensor) -> Tensor:
        """``coefficients @ G``, while the training runs again: in float64, one step after the other, as every store."""
        weights = per_step(coefficients, len(self)).tolist()
        if self._replay is None:
            raise RuntimeError("this store holds sketches only; to combine steps it needs a function that replays them")
        self._made = None  # as large as the model, and not needed while it trains again
        total = torch.zeros(self._size, dtype=torch.float64, device=self._device)
        step = 0

        def visit(displacement: Tensor) -> None:
            nonlocal step
            if step < len(weights):
                if abs(squared_norm(displacement) - self._squared[step]) > SAME_STEP * self._squared[step]:
                    raise RuntimeError(f"step {step + 1} of the replay is not the one of the training; {ADVICE}")
                for block, piece in zip(torch.split(total, BLOCK), torch.split(displacement, BLOCK), strict=True):
                    block.add_(piece.to(torch.float64, copy=True).mul_(weights[step]))
            step += 1

        self._replay(visit)
        if step != len(weights):
            raise RuntimeError(f"the replay took {step} steps, the training {len(weights)}; {ADVICE}")
        return total.to(self._dtype)

    def _sketch(self, vector: Tensor) -> Tensor:
        if self._made is None:
            self._made = CountSketch(self._size, _width(self._size), vector.device)
        return self._made(vector)


def _width(size: int) -> int:
    return WIDTH_OF_LARGE if size > LARGE else WIDTH
