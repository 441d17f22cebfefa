"""The two clients of the cases by hand: A has two examples, B one; every vector is (a, -a)."""

import numpy as np
import torch
from torch import Tensor

from ecgr.algorithms import Population

U_A, U_B = -0.7689414213699951, 0.5
MEAN = (2 * U_A + U_B) / 3  # -0.3459609475799967
EVERYBODY = Population(clients=2, examples=3)


def signed(a: float) -> Tensor:
    """The vector (a, -a)."""
    return torch.tensor([a, -a], dtype=torch.float32)


def assert_is(actual: Tensor, a: float) -> None:
    """``actual`` is (a, -a) to float32."""
    assert actual.dtype == torch.float32
    np.testing.assert_allclose(actual.numpy(), [a, -a], rtol=2e-6, atol=1e-9)
