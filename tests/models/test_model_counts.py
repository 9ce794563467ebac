"""Parameter and buffer counts: docs/papers, or arithmetic written here."""

import pytest

from raffed.models import MODELS, build
from raffed.models.mobilenet import STAGES
from raffed.models.net import Net
from tests.models.small_models import small


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


def moon_s(width: int, bias: bool) -> int:
    """The projection of 256 and the classifier of 10 behind it."""
    return linear(width, width) + linear(width, 256) + linear(256, 10, bias)


COUNTS = [  # model, input, C, keywords, parameters, feature width; page of docs/papers
    ("mlpnet", (1, 32, 32), 10, {}, 792_576, 512),  # docs/papers/map.md §E3
    ("mlpnet_authors", (1, 28, 28), 10, {}, 1_985_920, 128),  # docs/papers/map.md §E3 [C]
    ("mlpnet", (1, 28, 28), 10, {"head_bias": True}, 669_706, 512),  # benchmarks W1
    ("lenet", (1, 32, 32), 10, {}, 61_696, 84),  # docs/papers/map.md §E3
    ("lenet", (1, 28, 28), 10, {"head_bias": True}, 61_706, 84),  # benchmarks W2
    ("lenet_authors", (1, 32, 32), 10, {}, 10_832, 400),  # docs/papers/map.md §E3 [C]
    ("lenet_authors", (1, 28, 28), 10, {}, 9_392, 256),  # docs/papers/map.md §E3 [C]
    ("lenet", (3, 32, 32), 10, {}, 61_696 + 2 * 6 * 25, 84),  # two more channels into 6 5x5 filters
    ("mlp", (1, 8, 8), 10, {"hidden": (64,)}, 4_810, 64),  # benchmarks W3
    ("mlp", (1, 8, 8), 10, {}, 4_810 + linear(64, 64), 64),
    ("tfcnn", (3, 32, 32), 10, {}, 66_560, 1024),  # docs/papers/map.md §E3
    ("femnist_cnn", (1, 28, 28), 62, {}, 115_584, 1024),  # docs/papers/map.md §E3
    ("simplecnn", (3, 32, 32), 10, {}, 62_006, 84),  # docs/papers/fedmr.md §5
    (
        "simplecnn",
        (1, 28, 28),
        10,
        {},
        conv(1, 6, 5) + conv(6, 16, 5) + linear(256, 120) + linear(120, 84) + linear(84, 10),
        84,
    ),
    ("resnet18", (3, 32, 32), 10, {}, 11_173_962, 512),  # docs/papers/fedmr.md §4
    ("resnet18", (1, 28, 28), 10, {}, 11_172_810, 512),  # docs/papers/fedmr.md §4
    ("resnet20", (3, 32, 32), 10, {}, 272_464, 64),  # docs/papers/map.md §E3, from here
    ("resnet56", (3, 32, 32), 10, {}, 855_760, 64),
    ("vgg8", (3, 32, 32), 10, {}, 3_915_904, 512),
    ("vgg8_bn", (3, 32, 32), 100, {}, 3_964_928, 512),
    ("vgg11", (3, 32, 32), 100, {}, 9_271_680, 512),
    ("vgg11_bn", (3, 32, 32), 10, {}, 9_231_104, 512),
    ("vgg16_bn", (3, 32, 32), 100, {}, 14_774_336, 512),  # to here
    ("lenet_2d", (1, 32, 32), 10, {}, 61_696 - 840 + linear(84, 2) + 2 * 10, 2),
    ("wrn28", (3, 32, 32), 100, {}, 36_546_980, 640),  # docs/papers/fedmr.md §4
    ("efficientnet_b0", (3, 200, 200), 8, {}, 4_832_516, 640),  # docs/papers/fedmr.md §4
    (
        "cnn5",
        (3, 32, 32),
        10,
        {},
        307_192 + linear(64, 64) + linear(64, 256) + linear(256, 10),
        256,
    ),  # docs/papers/mpfedcon.md §1
    (
        "mlp5",
        (1, 28, 28),
        10,
        {},
        533_248 + linear(256, 256) + linear(256, 256) + linear(256, 10),
        256,
    ),  # docs/papers/mpfedcon.md §1
    (
        "lenet_dlg",
        (3, 32, 32),
        10,
        {},
        conv(3, 12, 5) + 2 * conv(12, 12, 5) + linear(768, 10),
        768,
    ),  # docs/papers/mpfedcon.md §5.2
    (
        "lenet_dlg",
        (3, 32, 32),
        100,
        {"fc_layers": 3},
        conv(3, 12, 5) + 2 * conv(12, 12, 5) + linear(768, 256) + linear(256, 128) + linear(128, 100),
        128,
    ),
    *(  # docs/papers/baselines.md, MOON: its official head, Linear, ReLU, Linear, read by the classifier
        (name, shape, 10, {"projection": 256}, plain - linear(width, 10, bias) + moon_s(width, bias), 256)
        for name, shape, plain, width, bias in (
            ("simplecnn", (3, 32, 32), 62_006, 84, True),
            ("lenet", (1, 32, 32), 61_696, 84, False),
            ("resnet18", (3, 32, 32), 11_173_962, 512, True),
            ("wrn28", (3, 32, 32), 36_546_980 - 90 * 641, 640, True),
            ("efficientnet_b0", (3, 200, 200), 4_832_516 + 2 * 641, 640, True),
        )
    ),
    ("resnet8", (1, 8, 8), 10, {}, resnet8_by_hand(1), 64),
    ("mlp", (1, 28, 28), 10, {"hidden": [200, 200]}, 199_210, 200),
    (  # FedVLS (AAAI 2025), Table 1, MOON: 200, 100 ReLU, 256, 10 behind the second layer
        "mlp",
        (1, 28, 28),
        10,
        {"hidden": [200, 200], "projection": 256, "projection_hidden": 100},
        245_726,
        256,
    ),
    # Numbers that public benchmarks print, or that their code has
    ("linear", (1, 28, 28), 10, {}, 7_850, 784),
    ("linear", (1, 28, 28), 10, {"sigmoid": True}, 7_850, 784),
    ("cnn_pfl", (3, 32, 32), 10, {}, 1_626_442, 128),
    ("cnn_pfllib", (1, 28, 28), 10, {}, 582_026, 512),
    ("cnn_pfllib", (3, 32, 32), 100, {}, 924_708, 512),
    ("cnn_mcmahan", (1, 28, 28), 10, {}, 1_663_370, 512),
    ("cnn_mcmahan", (1, 28, 28), 10, {"padding": "pools"}, 1_663_370, 512),
    ("vgg11_dropout", (3, 32, 32), 10, {}, 9_750_922, 512),
    ("mobilenet_v2", (3, 32, 32), 10, {}, 2_296_922, 1280),
    (  # FedVLS's code, MOON: 1280, 640 ReLU, 256, 10
        "mobilenet_v2",
        (3, 32, 32),
        10,
        {"projection": 256, "projection_hidden": 640},
        2_296_922 - linear(1280, 10) + linear(1280, 640) + linear(640, 256) + linear(256, 10),
        256,
    ),
    ("resnet18_gn", (3, 32, 32), 10, {}, 11_173_962, 512),  # as resnet18
    (
        "resnet18_gn",
        (3, 32, 32),
        10,
        {"projection": 256, "groups": 32},
        11_173_962 - linear(512, 10) + moon_s(512, True),
        256,
    ),
    ("resnet8", (3, 32, 32), 10, {}, resnet8_by_hand(3), 64),
]


@pytest.mark.parametrize(("name", "in_shape", "num_classes", "args", "count", "width"), COUNTS)
def test_a_net_has_the_sheet_s_number_of_parameters_and_feature_width(
    name, in_shape, num_classes, args, count, width
) -> None:
    net = build(name, in_shape, num_classes, 0, **args)
    assert parameters(net) == count
    assert net.feature_dim == net.head.in_features == width
    assert net.head.out_features == num_classes
    assert all(p.requires_grad for p in net.parameters())


def test_the_table_of_counts_covers_every_model() -> None:
    assert {row[0] for row in COUNTS} == set(MODELS)


def mobilenet_norms() -> list[int]:
    """The widths of all BatchNorms: stem, three in each block, those of the four shortcuts that change the
    width at stride 1, and the last.
    """
    found, k_in = [32], 32
    for expansion, width, blocks, _ in STAGES:
        for _ in range(blocks):
            found += [expansion * k_in, expansion * k_in, width]
            k_in = width
    return [*found, 16, 24, 96, 320, 1280]


# Network, running means and variances, layers: docs/papers/fedmr.md §4; docs/papers/map.md §E3 counts
# statistics and counters
BATCH_NORM = [
    ("resnet18", 9_600, 20),
    ("resnet8", 672, 9),
    ("wrn28", 17_952, 25),
    ("efficientnet_b0", 42_016, 49),
    ("resnet20", 1_589 - 21, 21),
    ("resnet56", 4_313 - 57, 57),
    ("vgg8_bn", 2_949 - 5, 5),
    ("vgg11_bn", 5_512 - 8, 8),
    ("vgg16_bn", 8_461 - 13, 13),
    ("mobilenet_v2", 2 * sum(mobilenet_norms()), 57),
]


@pytest.mark.parametrize(("name", "statistics", "layers"), BATCH_NORM)
def test_a_net_has_the_sheet_s_number_of_batch_norm_statistics_and_one_counter_a_layer(
    name, statistics, layers
) -> None:
    net = build(name, MODELS[name].in_shapes[0], 10, 0)
    saved = net.state_dict().keys()
    buffers = {key: value for key, value in net.named_buffers() if key in saved}
    counters = {key for key in buffers if key.endswith("num_batches_tracked")}
    kept = {key for key in buffers if key.endswith(("running_mean", "running_var"))}
    assert sum(buffers[key].numel() for key in kept) == statistics
    assert len(counters) == layers
    assert counters | kept == set(buffers)


def test_resnet18_splits_into_the_body_and_head_sizes_of_the_gldp_sheet() -> None:
    net = build("resnet18", (3, 32, 32), 100, 0)
    assert sum(p.numel() for p in net.body.parameters()) == 11_168_832
    assert sum(p.numel() for p in net.head.parameters()) == 51_300


@pytest.mark.parametrize("name", sorted(set(MODELS) - {row[0] for row in BATCH_NORM}))
def test_a_net_without_batch_norm_has_no_buffers(name: str) -> None:
    assert not list(small(name).buffers())


# The networks of MAP have no bias in the head unless it is asked for
WITHOUT_BIAS = {
    *("mlpnet", "mlpnet_authors", "lenet", "lenet_2d", "lenet_authors", "tfcnn", "femnist_cnn"),
    *("resnet20", "resnet56", "vgg8", "vgg8_bn", "vgg11", "vgg11_bn", "vgg16_bn"),
}


@pytest.mark.parametrize("name", MODELS)
def test_head_bias_decides_whether_the_head_has_a_bias_and_the_nets_of_map_leave_it_out(name: str) -> None:
    usual = name not in WITHOUT_BIAS
    assert (small(name).head.bias is not None) == usual
    assert (small(name, head_bias=not usual).head.bias is None) == usual


@pytest.mark.parametrize(
    ("name", "in_shape", "args", "count"),
    [
        ("cnn5", (3, 32, 32), {}, 307_192),
        ("cnn5", (3, 32, 32), {"channels": (64, 128), "hidden": (256, 128)}, 1_062_144),
        ("mlp5", (1, 28, 28), {}, 533_248),
    ],
)
def test_mpfedcon_s_encoders_have_its_sheet_s_sizes_and_the_rest_is_projection_or_head(
    name, in_shape, args, count
) -> None:
    net = build(name, in_shape, 10, 0, **args)
    encoder = {key: p.numel() for key, p in net.named_parameters() if key.startswith("body.encoder.")}
    assert sum(encoder.values()) == count
    rest = [key for key, _ in net.named_parameters() if key not in encoder]
    assert all(key.startswith(("body.projection.", "head.")) for key in rest)


@pytest.mark.parametrize(
    ("fc_layers", "private"), [(1, 0), (2, 768 * 256 + 256), (3, 768 * 256 + 256 + 256 * 128 + 128)]
)
def test_the_victim_s_hidden_fc_layers_are_its_projection(fc_layers: int, private: int) -> None:
    net = build("lenet_dlg", (3, 32, 32), 10, 0, fc_layers=fc_layers)
    assert sum(p.numel() for p in net.body.projection.parameters()) == private
    assert sum(p.numel() for p in net.body.encoder.parameters()) == conv(3, 12, 5) + 2 * conv(12, 12, 5)
