"""Every entry of MODELS: scores for any shape of data, counts of the paper, torchvision's names, norms, masks."""

from collections.abc import Mapping
from inspect import signature

import pytest
import torch
from torch import Tensor, nn

from ecgr.core.vectors import ParamSpec
from ecgr.errors import ConfigError
from ecgr.tasks.models import MODELS, cnn, lenet, mlp, resnet18, transformer
from ecgr.tasks.modules import FitToGrid

SIDES = {"lenet": 28, "cnn": 32, "resnet18": 64}

Shape = Mapping[str, int]
SHAPES: Mapping[str, tuple[Shape, ...]] = {
    "channels": ({"channels": 1, "classes": 10}, {"channels": 3, "classes": 7}),
    "features": ({"features": 13, "outputs": 1}, {"features": 5, "classes": 4}, {"features": 2, "outputs": 3}),
    "vocabulary": ({"vocabulary": 65, "classes": 65, "length": 20}, {"vocabulary": 9, "outputs": 1, "length": 5}),
}
"""Shapes of data by what tells their kind: images, tables, texts."""


def kind(name: str) -> str:
    return next(key for key in SHAPES if key in signature(MODELS[name]).parameters)


every = pytest.mark.parametrize("name", sorted(MODELS))
fitting = pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param(name, shape, id=f"{name}-{'-'.join(map(str, shape.values()))}")
        for name in sorted(MODELS)
        for shape in SHAPES[kind(name)]
    ],
)


def inputs(name: str, shape: Shape, samples: int) -> Tensor:
    """Random inputs of ``shape`` for the model ``name``."""
    generator = torch.Generator().manual_seed(0)
    if "channels" in shape:
        side = SIDES.get(name, 32)
        return torch.rand(samples, shape["channels"], side, side, generator=generator)
    if "features" in shape:
        return torch.rand(samples, shape["features"], generator=generator)
    return torch.randint(shape["vocabulary"], (samples, shape["length"]), generator=generator)


def scores_of(shape: Shape) -> int:
    return shape.get("classes") or shape["outputs"]


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@fitting
def test_scores_and_gradients_for_any_shape_of_data(name: str, shape: Shape) -> None:
    """The embedded digits fit every model of images."""
    torch.manual_seed(0)
    model = MODELS[name](**shape)
    scores = model(inputs(name, shape, 4))
    assert scores.shape == (4, scores_of(shape))
    assert torch.isfinite(scores).all()
    scores.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assert ParamSpec.of(model).size == parameters(model)
    if shape.get("channels") == 1:
        assert model(torch.zeros(2, 1, 28, 28)).shape == (2, scores_of(shape))


@every
def test_weights_are_those_of_the_generator_alone(name: str) -> None:
    specs = []
    for _ in range(2):
        torch.manual_seed(7)
        model = MODELS[name](**SHAPES[kind(name)][0])
        specs.append(ParamSpec.of(model).read(model))
    assert torch.equal(specs[0], specs[1])
    assert not torch.equal(specs[0], torch.zeros_like(specs[0]))


def test_parameter_counts_of_the_paper() -> None:
    assert parameters(lenet(channels=1, classes=10)) == 61_706
    assert parameters(cnn(channels=3, classes=10)) == 1_167_872
    assert parameters(resnet18(channels=3, classes=1000)) == 11_689_512


@pytest.mark.parametrize("width", [0.01, 0.125, 0.5, 2.0])
def test_cnn_width_multiplies_every_number_of_channels(width: float) -> None:
    model = cnn(width=width)
    sizes = [m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert sizes == [max(1, round(width * n)) for n in (32, 64, 128, 128, 256, 256)]
    assert cnn(width=width, norm="group")(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    scores = model(torch.rand(5, 3, 32, 32))
    assert torch.allclose(scores.exp().sum(dim=1), torch.ones(5), atol=1e-5), "log-probabilities"
    biases = [m.bias is not None for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert biases == [True, *[False] * 6]


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


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_group_norm_takes_batch_norms_place_and_name(name: str) -> None:
    torch.manual_seed(3)
    batch = MODELS[name](channels=3, classes=4, norm="batch")
    torch.manual_seed(3)
    group = MODELS[name](channels=3, classes=4, norm="group")
    assert not list(group.buffers())
    assert not [m for m in group.modules() if isinstance(m, nn.BatchNorm2d)]
    pairs = zip(batch.named_parameters(), group.named_parameters(), strict=True)
    assert all(one == other and torch.equal(p, q) for (one, p), (other, q) in pairs)


def test_mlp_has_the_hidden_sizes_it_is_told() -> None:
    layers = [m for m in mlp(features=7, classes=3, hidden=(5, 4)).modules() if isinstance(m, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(7, 5), (5, 4), (4, 3)]
    assert mlp(features=6, outputs=2, hidden=())(torch.zeros(4, 2, 3)).shape == (4, 2)


def small_transformer(pool: str) -> nn.Module:
    torch.manual_seed(1)
    return transformer(vocabulary=11, length=8, classes=3, width=16, heads=2, layers=2, pool=pool)  # type: ignore[arg-type]


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_padding_behind_a_mask_changes_nothing(pool: str) -> None:
    model = small_transformer(pool)
    short = torch.tensor([[1, 2, 3], [4, 5, 6]])
    padded = torch.cat([short, torch.tensor([[7, 8], [9, 10]])], dim=1)
    mask = torch.tensor([[True] * 3 + [False] * 2] * 2)
    torch.testing.assert_close(model(tokens=padded, mask=mask), model(short))
    torch.testing.assert_close(model(padded, mask.to(torch.uint8)), model(short))
    assert not torch.allclose(model(padded), model(short))
    assert torch.isfinite(model(tokens=padded, mask=torch.zeros_like(mask))).all(), "a text without a token"
    assert not torch.allclose(model(short.flip(1)), model(short)), "the order counts"


def test_attention_is_that_of_torch() -> None:
    """`torch.nn.MultiheadAttention` with the same weights is the oracle."""
    from ecgr.tasks.modules import Block

    torch.manual_seed(2)
    block = Block(width=12, heads=3)
    oracle = nn.MultiheadAttention(12, 3, batch_first=True)
    oracle.load_state_dict(
        {
            "in_proj_weight": block.attention_in.weight,
            "in_proj_bias": block.attention_in.bias,
            "out_proj.weight": block.attention_out.weight,
            "out_proj.bias": block.attention_out.bias,
        }
    )
    x, mask = torch.rand(2, 5, 12), torch.tensor([[True] * 5, [True, False, True, True, False]])
    expected, _ = oracle(x, x, x, key_padding_mask=~mask)
    torch.testing.assert_close(block.attention(x, mask), expected)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.heads: 3 heads cannot share a width of 64"):
        transformer(heads=3)


@pytest.mark.parametrize("size", [(5, 5), (7, 7), (5, 7), (3, 5)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_fit_to_grid_is_torchs_pooling_to_the_bit(size: tuple[int, int], layout: torch.memory_format) -> None:
    values = torch.randn(2, 6, *size, generator=torch.Generator().manual_seed(0)).round(decimals=1)  # with ties
    values[0, 0, 0, 0] = float("nan")
    found = []
    for pool in (FitToGrid(5), nn.AdaptiveMaxPool2d(5)):
        given = values.clone(memory_format=layout).requires_grad_()
        pooled = pool(given)
        (pooled * torch.arange(25.0).view(5, 5)).sum().backward()
        assert given.grad is not None
        found.append((pooled, given.grad))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours.nan_to_num(9.0), theirs.nan_to_num(9.0))
