"""Every entry of MODELS: shapes for any channels and classes, counts of the paper, torchvision's names."""

import pytest
import torch
from torch import nn

from ecgr.core.vectors import ParamSpec
from ecgr.tasks.models import MODELS, cnn, lenet, resnet18

SIDES = {"lenet": 28, "cnn": 32, "resnet18": 64}

every = pytest.mark.parametrize("name", sorted(MODELS))


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@every
@pytest.mark.parametrize(("channels", "classes"), [(1, 10), (3, 7)])
def test_scores_for_any_number_of_channels_and_classes(name: str, channels: int, classes: int) -> None:
    model = MODELS[name](channels=channels, classes=classes)
    side = SIDES.get(name, 32)
    scores = model(torch.zeros(2, channels, side, side))
    assert scores.shape == (2, classes)
    assert torch.isfinite(scores).all()


@every
def test_the_embedded_digits_fit_every_model(name: str) -> None:
    assert MODELS[name](channels=1, classes=10)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@every
def test_every_parameter_gets_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name](channels=1, classes=3)
    x = torch.rand(4, 1, SIDES.get(name, 32), SIDES.get(name, 32))
    nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 0])).backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assert ParamSpec.of(model).size == parameters(model)


@every
def test_weights_are_those_of_the_generator_alone(name: str) -> None:
    specs = []
    for _ in range(2):
        torch.manual_seed(7)
        model = MODELS[name](channels=1, classes=4)
        specs.append(ParamSpec.of(model).read(model))
    assert torch.equal(specs[0], specs[1])
    assert not torch.equal(specs[0], torch.zeros_like(specs[0]))


def test_parameter_counts_of_the_paper() -> None:
    assert parameters(lenet(channels=1, classes=10)) == 61_706
    assert parameters(cnn(channels=3, classes=10)) == 1_167_872
    assert parameters(resnet18(channels=3, classes=1000)) == 11_689_512


def test_cnn_gives_log_probabilities_without_a_bias_in_its_last_layer() -> None:
    model = cnn(width=0.25)
    scores = model(torch.rand(5, 3, 32, 32))
    assert torch.allclose(scores.exp().sum(dim=1), torch.ones(5), atol=1e-5)
    last = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert len(last) == 1
    assert last[0].bias is None


def test_cnn_has_the_papers_layers() -> None:
    """Convolutions 32; 64; 128, 128; 256, 256; all but the first without bias and with BatchNorm; three max-pools."""
    modules = list(cnn().modules())
    convolutions = [m for m in modules if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [32, 64, 128, 128, 256, 256]
    assert [c.bias is None for c in convolutions] == [False, True, True, True, True, True]
    assert [m.num_features for m in modules if isinstance(m, nn.BatchNorm2d)] == [64, 128, 128, 256, 256]
    assert sum(isinstance(m, nn.MaxPool2d) for m in modules) == 3


@pytest.mark.parametrize("width", [0.01, 0.125, 0.5, 2.0])
def test_cnn_width_multiplies_every_number_of_channels(width: float) -> None:
    model = cnn(width=width)
    sizes = [m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert sizes == [max(1, round(width * n)) for n in (32, 64, 128, 128, 256, 256)]
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_lenet_layers() -> None:
    shapes = {name: tuple(p.shape) for name, p in lenet().named_parameters()}
    assert shapes == {
        "conv1.weight": (6, 1, 5, 5),
        "conv1.bias": (6,),
        "conv2.weight": (16, 6, 5, 5),
        "conv2.bias": (16,),
        "fc1.weight": (120, 400),
        "fc1.bias": (120,),
        "fc2.weight": (84, 120),
        "fc2.bias": (84,),
        "fc3.weight": (10, 84),
        "fc3.bias": (10,),
    }


def torchvision_resnet18() -> dict[str, tuple[int, ...]]:
    """The 122 entries of torchvision.models.resnet18().state_dict(), in its order, written out by structure."""

    def norm(prefix: str, size: int) -> dict[str, tuple[int, ...]]:
        names = ("weight", "bias", "running_mean", "running_var")
        return {f"{prefix}.{name}": (size,) for name in names} | {f"{prefix}.num_batches_tracked": ()}

    entries: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    previous = 64
    for layer, size in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            prefix = f"layer{layer}.{block}"
            inputs = previous if block == 0 else size
            entries |= {f"{prefix}.conv1.weight": (size, inputs, 3, 3), **norm(f"{prefix}.bn1", size)}
            entries |= {f"{prefix}.conv2.weight": (size, size, 3, 3), **norm(f"{prefix}.bn2", size)}
            if block == 0 and layer > 1:
                entries |= {f"{prefix}.downsample.0.weight": (size, inputs, 1, 1)}
                entries |= norm(f"{prefix}.downsample.1", size)
        previous = size
    return entries | {"fc.weight": (1000, 512), "fc.bias": (1000,)}


def test_resnet18_has_torchvisions_state_dict() -> None:
    expected = torchvision_resnet18()
    assert len(expected) == 122
    state = resnet18().state_dict()
    assert list(state) == list(expected)
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == expected


def test_resnet18_halves_the_picture_five_times() -> None:
    """A stride in the right convolution: 64 pixels become 2 by 2 before the mean; blocks stride in conv1."""
    model = resnet18(classes=5)
    seen: list[tuple[int, ...]] = []
    for name in ("maxpool", "layer1", "layer2", "layer3", "layer4"):
        model.get_submodule(name).register_forward_hook(lambda _m, _i, output: seen.append(tuple(output.shape[2:])))
    model(torch.zeros(2, 3, 64, 64))
    assert seen == [(16, 16), (16, 16), (8, 8), (4, 4), (2, 2)]
    strides = [model.get_submodule(f"layer{i}.0.conv1").stride for i in (1, 2, 3, 4)]
    assert strides == [(1, 1), (2, 2), (2, 2), (2, 2)]
