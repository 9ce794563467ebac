"""Parameter and buffer counts: the papers' sheets, or arithmetic written here."""

import pytest

from raffed.models import MODELS, build
from raffed.models.net import Net


def parameters(net: Net) -> int:
    return sum(p.numel() for p in net.parameters())


def conv(k_in: int, k_out: int, side: int, bias: bool = True) -> int:
    return k_in * k_out * side * side + (k_out if bias else 0)


def linear(width_in: int, width_out: int, bias: bool = True) -> int:
    return width_in * width_out + (width_out if bias else 0)


def resnet8_by_hand(channels: int) -> int:
    stem = conv(channels, 16, 3, False) + 2 * 16
    stage1 = 2 * conv(16, 16, 3, False) + 2 * 2 * 16
    stage2 = conv(16, 32, 3, False) + conv(32, 32, 3, False) + conv(16, 32, 1, False) + 3 * 2 * 32
    stage3 = conv(32, 64, 3, False) + conv(64, 64, 3, False) + conv(32, 64, 1, False) + 3 * 2 * 64
    return stem + stage1 + stage2 + stage3 + linear(64, 10)


COUNTS = [  # model, input, C, keywords, parameters, feature width; sheet
    ("mlpnet", (1, 32, 32), 10, {}, 792_576, 512),  # experiments-map §3
    ("mlpnet", (1, 28, 28), 10, {"hidden": (1024, 1024, 128)}, 1_985_920, 128),  # experiments-map §3 [C]
    ("mlpnet", (1, 28, 28), 10, {"head_bias": True}, 669_706, 512),  # benchmarks W1
    ("lenet", (1, 32, 32), 10, {}, 61_696, 84),  # experiments-map §3
    ("lenet", (1, 28, 28), 10, {"head_bias": True}, 61_706, 84),  # benchmarks W2
    ("lenet_authors", (1, 32, 32), 10, {}, 10_832, 400),  # experiments-map §3 [C]
    ("lenet_authors", (1, 28, 28), 10, {}, 9_392, 256),  # experiments-map §3 [C]
    ("lenet", (3, 32, 32), 10, {}, 61_696 + 2 * 6 * 25, 84),  # two more channels into 6 5x5 filters
    ("mlp", (1, 8, 8), 10, {"hidden": (64,)}, 4_810, 64),  # benchmarks W3
    ("mlp", (1, 8, 8), 10, {}, 4_810 + linear(64, 64), 64),
    ("tfcnn", (3, 32, 32), 10, {}, 66_560, 1024),  # experiments-map §3
    ("femnist_cnn", (1, 28, 28), 62, {}, 115_584, 1024),  # experiments-map §3
    ("simplecnn", (3, 32, 32), 10, {}, 62_006, 84),  # fedmr §5
    (
        "simplecnn",
        (1, 28, 28),
        10,
        {},
        conv(1, 6, 5) + conv(6, 16, 5) + linear(256, 120) + linear(120, 84) + linear(84, 10),
        84,
    ),
    ("resnet18", (3, 32, 32), 10, {}, 11_173_962, 512),  # fedmr §4
    ("resnet18", (1, 28, 28), 10, {}, 11_172_810, 512),  # fedmr §4
    ("resnet8", (1, 8, 8), 10, {}, resnet8_by_hand(1), 64),
    ("resnet8", (3, 32, 32), 10, {}, resnet8_by_hand(3), 64),
]


@pytest.mark.parametrize(("name", "in_shape", "num_classes", "args", "count", "width"), COUNTS)
def test_a_net_has_the_sheet_s_number_of_parameters_and_feature_width(name, in_shape, num_classes, args, count, width) -> None:
    net = build(name, in_shape, num_classes, 0, **args)
    assert parameters(net) == count
    assert net.feature_dim == net.head.in_features == width
    assert net.head.out_features == num_classes
    assert all(p.requires_grad for p in net.parameters())


def test_the_table_of_counts_covers_every_model() -> None:
    assert {row[0] for row in COUNTS} == set(MODELS)


@pytest.mark.parametrize(("name", "statistics", "layers"), [("resnet18", 9_600, 20), ("resnet8", 672, 9)])
def test_a_resnet_has_the_sheet_s_number_of_batch_norm_statistics_and_one_counter_a_layer(name, statistics, layers) -> None:
    buffers = dict(build(name, (3, 32, 32), 10, 0).named_buffers())
    counters = {key for key in buffers if key.endswith("num_batches_tracked")}
    kept = {key for key in buffers if key.endswith(("running_mean", "running_var"))}
    assert sum(buffers[key].numel() for key in kept) == statistics
    assert len(counters) == layers
    assert counters | kept == set(buffers)


def test_resnet18_splits_into_the_body_and_head_sizes_of_the_gldp_sheet() -> None:
    net = build("resnet18", (3, 32, 32), 100, 0)
    assert sum(p.numel() for p in net.body.parameters()) == 11_168_832
    assert sum(p.numel() for p in net.head.parameters()) == 51_300


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"resnet18", "resnet8"}))
def test_a_net_without_batch_norm_has_no_buffers(name: str) -> None:
    assert not list(build(name, MODELS[name].in_shapes[0], 10, 0).buffers())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("head_bias", [True, False])
def test_head_bias_decides_whether_the_head_has_a_bias(name: str, head_bias: bool) -> None:
    net = build(name, MODELS[name].in_shapes[0], 7, 0, head_bias=head_bias)
    assert (net.head.bias is not None) == head_bias


@pytest.mark.parametrize(
    ("names", "default"),
    [(("mlpnet", "lenet", "lenet_authors", "tfcnn", "femnist_cnn"), False), (("mlp", "simplecnn", "resnet8", "resnet18"), True)],
)
def test_only_the_nets_of_map_leave_out_the_head_bias_unasked(names: tuple[str, ...], default: bool) -> None:
    assert {name: build(name, MODELS[name].in_shapes[0], 7, 0).head.bias is not None for name in names} == dict.fromkeys(
        names, default
    )
