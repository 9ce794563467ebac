"""The identity of a configuration stays what it is: run folders and records of older versions name it."""

from __future__ import annotations

import pytest

from raffed.config.run import RunConfig
from tests.golden.configurations import CONFIGURATIONS

IDENTITIES = {  # taken at commit 3cfade7, before the arguments of methods were declared in their signatures
    "fedavg": "43b3cfecb32694d92e00be1d83075ab44b8c68e84365fbc2ac2e5baecdee706a",
    "fedavg-ray": "43b3cfecb32694d92e00be1d83075ab44b8c68e84365fbc2ac2e5baecdee706a",
    "fedavg-stacked": "c89653396b65e0ee5d1f07319d846b4a688d9c84663298c7952aa5a74908dc2a",
    "fedmr-dropout": "222135d135e7763ff2c70df5836c6bbcce48e1bd1c5517997377a96e59d801a8",
    "fedmr-stacked": "f72885f279264e28e455e4212045a8835c6363769f7c48246b9091b210f7b313",
    "map-batchnorm": "75c31c4a0c67ea7e5aae9c453d6e5d01b1f0c71be6205c52587fc4b9c9972a1a",
    "map-ray": "0904aee5394a585c143af7177d77976bebd4310a3d37fdb939b4318b0c589c5c",
    "scamap": "c703c336447e8d65777bbd1749db95191fcc9e7773f3d8bb6654eedaba39bef8",
    "gldp-stages": "c43d70f5dec98866d0fae648553908d8a4349b433868f44d681902f50c26efa9",
    "scaffold": "149e2831e021ec63cf413b7e2bd396d5ecb15fc876884db5359e2d80f7d2b1bf",
    "creff": "730cc12d49173dadecada4df256720dbfe7f69ff9a4f26bfd067fd4f0d7417b3",
    "fedproto-ray": "932ae50bdf1b56d81d252b02539db74255754a9d8cfd6b27c131897ee228b11c",
    "apfl-stacked": "c562ccae63bf1a510a77c4e3d80640e59d77d0cf27eb8ef4ac990f28f26f7222",
    "perfedavg-stacked": "28f40d451b3b3252f06813061ad93594372dfe72a5271a434500061d84e00cab",
    "feddyn": "dc0d51b95552bf321b0e972ee81de7142b11fa47710471cbb12a07c0f74e5db9",
    "faults": "4006a03c618ee8e9a0a5e41038ea56efec276a1495f420ec30103db26d802374",
    "privacy-noise": "1fdd603c92ae264abfcaa181d37b953164dd038b5b754f7adbe6eb2cf86ed39c",
    "privacy-masks-ray": "8d68a8b056a0ce57a102ed44db0f2db52ea9f12ffb069b829f157150bbd5ce8e",
    "bf16": "fc88b4ca1b251966f6af7c59c5c2a335d8658e7e3aef9d98ccd037999f1eae17",
    "mpfedcon-validation": "72c9ba3d3fa7e98c4141e524f58e95a3811285a4a04d82464b525d13fc28d7b5",
}


def test_every_configuration_has_a_pinned_identity() -> None:
    assert set(IDENTITIES) == set(CONFIGURATIONS)
    assert len(IDENTITIES) == 20
    assert len(set(IDENTITIES.values())) == 19  # where a run is executed is not a part of its identity


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_identity_of_a_configuration_is_the_pinned_one(name: str) -> None:
    assert RunConfig.from_dict(CONFIGURATIONS[name]).identity() == IDENTITIES[name]
