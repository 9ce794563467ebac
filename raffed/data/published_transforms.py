"""How the published data sets are prepared, by the style of the paper whose experiments are repeated.

The constants are those of the experiments of FedMR (TMLR 2023) and MAP, as in their authors' code.
"""

from __future__ import annotations

from dataclasses import replace

from raffed.data.preparation import FlambyAugment, Transform

_GREY_32 = Transform(size=32, mean=(0.5,), std=(0.5,))
_GREY_28 = Transform(mean=(0.5,), std=(0.5,))  # MAP's released code does not resize its grey sets
_GREY = Transform()
_COLOUR = Transform(mean=(0.0,) * 3, std=(1.0,) * 3)
_HALVED = Transform(mean=(0.5,) * 3, std=(0.5,) * 3)
_MAP_CIFAR = Transform(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010), crop_padding=4, flip=True)
_FEDMR_SVHN = Transform(mean=(0.4376821, 0.4437697, 0.47280442), std=(0.19803012, 0.20101562, 0.19703614))
_FEDMR_CIFAR10 = Transform(
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2615),
    crop_padding=4,
    padding_mode="reflect",
    flip=True,
)
_FEDMR_CIFAR100 = Transform(
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    crop_padding=4,
    flip=True,
    rotation_degrees=15.0,
)
_TINY_IMAGENET = Transform(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))  # ImageNet's
_LESIONS = replace(_TINY_IMAGENET, centre=200, flamby=FlambyAugment())


def _styles(
    plain: Transform, fedmr: Transform, map: Transform, map_authors: Transform
) -> dict[str, Transform]:
    return {"plain": plain, "fedmr": fedmr, "map": map, "map-authors": map_authors}


def _alike(plain: Transform, papers: Transform) -> dict[str, Transform]:
    return _styles(plain, papers, papers, papers)


CIFAR10 = _styles(_COLOUR, _FEDMR_CIFAR10, _MAP_CIFAR, _MAP_CIFAR)
CIFAR100 = _styles(_COLOUR, _FEDMR_CIFAR100, _MAP_CIFAR, _MAP_CIFAR)
CINIC10 = CIFAR10  # not used in FedMR; treated like CIFAR-10
DIGITS = _alike(_GREY, _GREY)  # used in neither paper; 8x8, [0, 1]
MNIST = _styles(_GREY, _GREY, _GREY_32, _GREY_28)  # not used in FedMR; treated like its other grey set
FASHION_MNIST = MNIST
# Not used in FedMR. MAP: 28x28, [0, 1]; its authors' horizontal flip harms characters and is left out
FEMNIST = _alike(_GREY, _GREY)
FEMNIST_LETTERS = FEMNIST  # MpFedcon: 28x28, [0, 1]
ISIC2019 = _alike(_COLOUR, _LESIONS)  # used in FedMR only
SVHN = _styles(_COLOUR, _FEDMR_SVHN, _HALVED, _HALVED)  # not used in MAP; scaled like its grey sets
TINY_IMAGENET = _alike(_COLOUR, _TINY_IMAGENET)  # used in neither paper; GLDP does not augment
