"""The optimiser that starts without a compiler takes torch's own steps."""

import pytest
import torch
from torch.optim import SGD

from ecgr.config.lean_sgd import LeanSGD


def trained(kind: type[SGD], momentum: float, decay: float) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    parameters = [torch.nn.Parameter(torch.randn(*shape, generator=generator)) for shape in ((3, 4), (5,))]
    optimizer = kind(parameters, lr=0.1, momentum=momentum, weight_decay=decay)
    for step in range(7):
        optimizer.zero_grad()
        for parameter in parameters[step % 3 == 0 :]:  # the first one has no gradient, and at first no momentum
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.01)])
def test_steps_are_those_of_torch_to_the_bit(momentum: float, decay: float) -> None:
    for lean, plain in zip(trained(LeanSGD, momentum, decay), trained(SGD, momentum, decay), strict=True):
        assert torch.equal(lean, plain)


def test_sparse_gradients_are_left_to_torch() -> None:
    ends = []
    for kind in (LeanSGD, SGD):
        table = torch.nn.Embedding(4, 2, sparse=True, _weight=torch.ones(4, 2))
        optimizer = kind(table.parameters(), lr=0.1, momentum=0.9)
        for rows in ([0, 1], [1, 3]):
            optimizer.zero_grad()
            table(torch.tensor(rows)).sum().backward()
            optimizer.step()
        ends.append(table.weight.detach())
    assert torch.equal(*ends)


def test_hooks_run_and_the_state_survives_a_round_trip() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer, seen = LeanSGD([parameter], lr=0.1, momentum=0.9), []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    parameter.grad = torch.ones(2)
    optimizer.step()
    assert seen == ["before", "after"]
    assert not parameter.grad_fn
    other = LeanSGD([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    other.load_state_dict(optimizer.state_dict())
    assert other.state_dict()["param_groups"][0]["lr"] == 0.1
