"""Convolutional networks without BatchNorm and without dropout. "Max-pool" is 2x2 with stride 2, odd rows
dropped.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from raffed.models.net import GridMean, Net, init_map, refuse_shape, with_projection

Shape = tuple[int, int, int]


def lenet(in_shape: Shape, num_classes: int, *, projection: int = 0, head_bias: bool = False) -> Net:
    """LeNet-5 as read from Li et al. (MAP, TKDE 2024), LeCun et al.'s net with ReLU and max-pooling;
    `init_map`.

        z is the 84-wide layer after its ReLU. 28x28 inputs are zero-padded to 32x32 by the first convolution,
        so both sizes have one parameter count: 61,696 for one channel and 10 classes; 61,706 with head_bias,
        the peer benchmark's net. projection: width of MOON's, 0 for none (`with_projection`).
    """
    channels, height, width = in_shape
    if height != width or height not in (28, 32):
        raise refuse_shape("lenet", in_shape, "Kx28x28 and Kx32x32 for any number of channels K")
    body = _lenet_body(channels, 400, padding=2 if height == 28 else 0)
    net = with_projection("lenet", Net(body, nn.Linear(84, num_classes, bias=head_bias)), projection)
    init_map(net)
    return net


def lenet_2d(in_shape: Shape, num_classes: int, *, relu: bool = False, head_bias: bool = False) -> Net:
    """LeNet-5 with a further layer from 84 to 2, whose output is drawn (MAP, Figs. 5 and 8); `init_map`.

    z is 2 wide, signed unless `relu`. The paper's "84 → 2" is read as a layer more, not as 2 in the place of
    84.
    """
    net = lenet(in_shape, num_classes)
    assert isinstance(net.body, nn.Sequential)
    net.body.add_module("fc3", nn.Linear(84, 2))
    if relu:
        net.body.add_module("relu5", nn.ReLU())
    net = Net(net.body, nn.Linear(2, num_classes, bias=head_bias))
    init_map(net)
    return net


def lenet_authors(in_shape: Shape, num_classes: int, *, head_bias: bool = False) -> Net:
    """LeNet of the MAP authors' released code: two 5x5 convolutions of 16 with ReLU and max-pool, then the
    head; `init_map`.

        z is the flattened last map: 400 wide and 10,832 parameters on 1x32x32, 256 and 9,392 on 1x28x28, with
        10 classes.
    """
    channels, height, width = in_shape
    if min(height, width) < 16:
        raise refuse_shape("lenet_authors", in_shape, "KxHxW with H and W of at least 16")
    left_h, left_w = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, 16, 5),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(16, 16, 5),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(1),
    )
    net = Net(nn.Sequential(layers), nn.Linear(16 * left_h * left_w, num_classes, bias=head_bias))
    init_map(net)
    return net


def simplecnn(in_shape: Shape, num_classes: int, *, projection: int = 0, head_bias: bool = True) -> Net:
    """SimpleCNN (FedMR's code, TMLR 2023), PyTorch's default initialisation. z is the 84-wide layer after its
    ReLU.

        62,006 parameters on 3x32x32 and 44,426 on 1x28x28 (no padding: flatten 256), with 10 classes.
        projection: width of MOON's, 0 for none (`with_projection`).
    """
    channels, height, width = in_shape
    if min(height, width) < 16:
        raise refuse_shape("simplecnn", in_shape, "KxHxW with H and W of at least 16")
    left_h, left_w = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    net = Net(
        _lenet_body(channels, 16 * left_h * left_w, padding=0), nn.Linear(84, num_classes, bias=head_bias)
    )
    return with_projection("simplecnn", net, projection)


def tfcnn(in_shape: Shape, num_classes: int, *, head_bias: bool = False) -> Net:
    """TFCNN (Li et al., MAP's code): three 3x3 convolutions 32, 64, 64, each with ReLU and max-pool;
    `init_map`.

        z is the flattened last map: 1024 wide and 66,560 parameters on 3x32x32 with 10 classes. The paper's
        "net of FedAvg" would be TensorFlow's tutorial net; the code is followed.
    """
    channels, height, width = in_shape
    if min(height, width) < 8:
        raise refuse_shape("tfcnn", in_shape, "KxHxW with H and W of at least 8")
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (k_in, k_out) in enumerate(((channels, 32), (32, 64), (64, 64)), start=1):
        layers[f"conv{i}"] = nn.Conv2d(k_in, k_out, 3, padding=1)
        layers[f"relu{i}"] = nn.ReLU()
        layers[f"pool{i}"] = nn.MaxPool2d(2)
    layers["flatten"] = nn.Flatten(1)
    feature_dim = 64 * (height // 8) * (width // 8)
    net = Net(nn.Sequential(layers), nn.Linear(feature_dim, num_classes, bias=head_bias))
    init_map(net)
    return net


def femnist_cnn(in_shape: Shape, num_classes: int, *, head_bias: bool = False) -> Net:
    """Li et al.'s net for handwritten characters (MAP's code), pooled to 4x4 before the head; `init_map`.

    z is the flattened 64x4x4 map, 1024 wide on every input size. 115,584 parameters for one channel and 62
    classes.
    """
    channels, height, width = in_shape
    if min(height, width) < 8:
        raise refuse_shape("femnist_cnn", in_shape, "KxHxW with H and W of at least 8")
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, 32, 5, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 5, padding=2),
        relu2=nn.ReLU(),
        pool2=GridMean(4),
        flatten=nn.Flatten(1),
    )
    net = Net(nn.Sequential(layers), nn.Linear(1024, num_classes, bias=head_bias))
    init_map(net)
    return net


def _lenet_body(channels: int, flat: int, padding: int) -> nn.Sequential:
    """conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten `flat`, 120 ReLU, 84 ReLU: [B, K, H, W]
    -> [B, 84].
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, 6, 5, padding=padding),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(6, 16, 5),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(1),
        fc1=nn.Linear(flat, 120),
        relu3=nn.ReLU(),
        fc2=nn.Linear(120, 84),
        relu4=nn.ReLU(),
    )
    return nn.Sequential(layers)
