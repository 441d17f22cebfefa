"""The two clients of the cases by hand: A has two examples, B one; every vector is (a, -a)."""

import numpy as np
import torch
from torch import Tensor

from ecgr.algorithms import Entry, Population, Trace, Upload, compose
from ecgr.component import State

U_A, U_B = -0.7689414213699951, 0.5
MEAN = (2 * U_A + U_B) / 3  # -0.3459609475799967
EVERYBODY = Population(clients=2, examples=3)


def signed(a: float) -> Tensor:
    """The vector (a, -a)."""
    return torch.tensor([a, -a], dtype=torch.float32)


def uploads_of(entry: Entry, server: State | None = None, *, lr: float = 1.0, momentum: float = 0.0) -> list[Upload]:
    """What A and B upload in their first round, from traces made by hand."""
    params, algorithm, uploads = signed(0.0), compose(entry), []
    server = algorithm.init_server(params) if server is None else server
    for client, (examples, steps, update) in enumerate([(2, 2, U_A), (1, 1, U_B)]):
        trace = Trace(signed(update), signed(update), steps, lr, momentum)
        uploads.append(Upload(client, examples, algorithm.finish(trace, server, algorithm.init_client(params))[1]))
    return uploads


def assert_is(actual: Tensor | None, a: float) -> None:
    """``actual`` is (a, -a) to float32."""
    assert actual is not None
    assert actual.dtype == torch.float32
    np.testing.assert_allclose(actual.numpy(), [a, -a], rtol=2e-6, atol=1e-9)
