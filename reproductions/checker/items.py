"""The checker: tables that other people printed, run by raffed.

Every table has a file of its own with its data, partition, network, protocol, margin and claims. The rule by
which numbers are judged is in analysis/metrics/equivalence.py.
"""

from __future__ import annotations

from . import (
    fedlesam_1,
    fednova_cifar10,
    fedprox_mnist,
    fedvls_cifar10,
    fedvls_mnist,
    fedwmsam_fmnist,
    flbenchmark,
    ifca_mnist,
    isic2019,
    lr_mnist,
    moon_cifar10,
    niid_cifar10,
    niid_cifar10_100,
    niid_fmnist,
    niid_mnist,
    pfl_cifar10,
    pfllib_259,
    pfllib_cifar100,
    pfllib_cost,
    pfllib_fmnist,
    tamuna_mnist,
)

ITEMS = tuple(
    module.ITEM
    for module in (
        fedvls_mnist,
        niid_fmnist,
        niid_cifar10,
        niid_mnist,
        niid_cifar10_100,
        pfllib_fmnist,
        pfllib_cifar100,
        pfllib_cost,
        moon_cifar10,
        fednova_cifar10,
        fedprox_mnist,
        tamuna_mnist,
        lr_mnist,
        isic2019,
        flbenchmark,
        fedvls_cifar10,
        pfl_cifar10,
        ifca_mnist,
        fedwmsam_fmnist,
        pfllib_259,
        fedlesam_1,
    )
)
