"""The checker: tables that other people printed, run by raffed.

Every table, or family of tables, has a file of its own with its data, partition, network, protocol, margin
and claims. The rule by which numbers are judged is in analysis/metrics/equivalence.py.
"""

from __future__ import annotations

from . import (
    fedlesam_1,
    fednova_cifar10,
    fedprox_mnist,
    fedvls,
    fedwmsam_fmnist,
    flbenchmark,
    ifca_mnist,
    isic2019,
    lr_mnist,
    moon_cifar10,
    niid_bench,
    niid_cifar10,
    niid_cifar10_100,
    pfl_cifar10,
    pfllib,
    pfllib_259,
    pfllib_cost,
    tamuna_mnist,
)

ITEMS = (
    fedvls.MNIST,
    niid_bench.FMNIST,
    niid_cifar10.ITEM,
    niid_bench.MNIST,
    niid_cifar10_100.ITEM,
    pfllib.FMNIST,
    pfllib.CIFAR100,
    pfllib_cost.ITEM,
    moon_cifar10.ITEM,
    fednova_cifar10.ITEM,
    fedprox_mnist.ITEM,
    tamuna_mnist.ITEM,
    lr_mnist.ITEM,
    isic2019.ITEM,
    flbenchmark.ITEM,
    fedvls.CIFAR10,
    pfl_cifar10.ITEM,
    ifca_mnist.ITEM,
    fedwmsam_fmnist.ITEM,
    pfllib_259.ITEM,
    fedlesam_1.ITEM,
)
