"""VGG networks for small images (Simonyan & Zisserman 2015, in the form of MAP's code).

They have 3x3 convolutions, five max-pools and no hidden linear layer. Every convolution has a bias, also
where BatchNorm follows. The feature z is the flattened last map, 512 wide on 32x32. There is no dropout, and
weights are initialised by `init_map`. `vgg11_dropout` is the exception: it has both, and its own weights.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from raffed.config.validation import checked
from raffed.models import Classes, DropoutRate, HeadBias, ImageShape
from raffed.models.net import Dropout, Net, check_side, init_convs, init_map

Shape = tuple[int, int, int]

_POOL = 0  # stands for a max-pool in a list of widths
_VGG8 = (64, _POOL, 128, _POOL, 256, _POOL, 512, _POOL, 512, _POOL)
_VGG11 = (64, _POOL, 128, _POOL, 256, 256, _POOL, 512, 512, _POOL, 512, 512, _POOL)
_VGG16 = (64, 64, _POOL, 128, 128, _POOL, *[256] * 3, _POOL, *[512] * 3, _POOL, *[512] * 3, _POOL)


@checked
def vgg8(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make VGG8, with 5 convolutions. 3,915,904 parameters on 3x32x32 with 10 classes.

    Layers:
        conv3 64 M 128 M 256 M 512 M 512 M (ReLU after each; M: max-pool), flatten 512, C

    Inputs:
        3x32x32

    Source:
        Li et al., MAP, TKDE 2024, code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 512] on 32x32).
    """
    return _vgg("vgg8", _VGG8, in_shape, num_classes, norm=False, head_bias=head_bias)


@checked
def vgg8_bn(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make VGG8 with BatchNorm after each convolution.

    On 3x32x32 with 100 classes it has 3,964,928 parameters and 2,949 entries in buffers. Arguments and result
    are those of `vgg8`.

    Layers:
        vgg8 with BN after each convolution

    Inputs:
        3x32x32

    Source:
        Li et al., MAP, TKDE 2024, code
    """
    return _vgg("vgg8_bn", _VGG8, in_shape, num_classes, norm=True, head_bias=head_bias)


@checked
def vgg11(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make VGG11, with 8 convolutions. 9,271,680 parameters on 3x32x32 with 100 classes.

    Without BatchNorm it may need a warm-up of the learning rate. Arguments and result are those of `vgg8`.

    Layers:
        conv3 64 M 128 M 256 256 M 512 512 M 512 512 M (ReLU after each; M: max-pool), flatten 512, C

    Inputs:
        3x32x32

    Source:
        Li et al., MAP, TKDE 2024, code
    """
    return _vgg("vgg11", _VGG11, in_shape, num_classes, norm=False, head_bias=head_bias)


@checked
def vgg11_bn(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make VGG11 with BatchNorm after each convolution.

    On 3x32x32 with 10 classes it has 9,231,104 parameters and 5,512 entries in buffers. Arguments and result
    are those of `vgg8`.

    Layers:
        vgg11 with BN after each convolution

    Inputs:
        3x32x32

    Source:
        Li et al., MAP, TKDE 2024, code
    """
    return _vgg("vgg11_bn", _VGG11, in_shape, num_classes, norm=True, head_bias=head_bias)


@checked
def vgg16_bn(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make VGG16 with BatchNorm, with 13 convolutions.

    On 3x32x32 with 100 classes it has 14,774,336 parameters and 8,461 entries in buffers. Arguments and
    result are those of `vgg8`.

    Layers:
        conv3 64 64 M 128 128 M 256x3 M 512x3 M 512x3 M (BN, ReLU after each; M: max-pool), flatten 512, C

    Inputs:
        3x32x32

    Source:
        Li et al., MAP, TKDE 2024, code
    """
    return _vgg("vgg16_bn", _VGG16, in_shape, num_classes, norm=True, head_bias=head_bias)


@checked
def vgg11_dropout(
    in_shape: ImageShape, num_classes: Classes, *, dropout: DropoutRate = 0.5, head_bias: HeadBias = True
) -> Net:
    """Make VGG11 with two hidden layers of 512 behind its convolutions, each after dropout.

    On 3x32x32 with 10 classes it has 9,750,922 parameters. Convolutions start as in `init_convs`, and linear
    layers with PyTorch's default.

    Layers:
        vgg11 up to flatten 512, then twice dropout 0.5, 512 ReLU, and C

    Inputs:
        3x32x32

    Source:
        Wang et al. 2020, FedNova, in Flower.
        Simonyan & Zisserman 2015; the network of Flower's FedNova baseline, after Wang et al. 2020.

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 512]); z is after its ReLU.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    layers, width = _convolutions("vgg11_dropout", _VGG11, in_shape, norm=False)
    for i in (1, 2):
        layers[f"dropout{i}"] = Dropout(dropout)
        layers[f"fc{i}"] = nn.Linear(width, 512)
        layers[f"fc_relu{i}"] = nn.ReLU()
        width = 512
    net = Net(nn.Sequential(layers), nn.Linear(width, num_classes, bias=head_bias))
    init_convs(net)
    return net


def _vgg(
    name: str, plan: tuple[int, ...], in_shape: Shape, num_classes: int, *, norm: bool, head_bias: bool
) -> Net:
    layers, width = _convolutions(name, plan, in_shape, norm=norm)
    net = Net(nn.Sequential(layers), nn.Linear(width, num_classes, bias=head_bias))
    init_map(net)
    return net


def _convolutions(
    name: str, plan: tuple[int, ...], in_shape: Shape, *, norm: bool
) -> tuple[OrderedDict[str, nn.Module], int]:
    """Return the layers up to the flattened last map, and its width."""
    channels, height, width = in_shape
    check_side(name, in_shape, 32)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    conv = pool = 0
    for out in plan:
        if out == _POOL:
            pool += 1
            layers[f"pool{pool}"] = nn.MaxPool2d(2)
            continue
        conv += 1
        layers[f"conv{conv}"] = nn.Conv2d(channels, out, 3, padding=1)
        if norm:
            layers[f"norm{conv}"] = nn.BatchNorm2d(out)
        layers[f"relu{conv}"] = nn.ReLU()
        channels = out
    layers["flatten"] = nn.Flatten(1)
    return layers, channels * (height // 32) * (width // 32)
