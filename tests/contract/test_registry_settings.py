"""The runs of the registry have the settings of the papers' sheets."""

from __future__ import annotations

from raffed.reproductions.fedmr.settings import CHOSEN
from raffed.reproductions.fedmr.settings import METHODS as FEDMR_METHODS

from raffed import Local
from raffed.data.catalogue import DATASETS
from raffed.data.label_splits import LogNormalSizes
from raffed.data.transforms import transform_for
from raffed.models import build
from tests.papers import items


def test_map_s_rows_have_the_budgets_modes_and_rates_of_its_sheets() -> None:
    """docs/papers/baselines-personal.md, Per-FedAvg (α is the run's rate), FedRep (max(1, E // 3) epochs of
    the body); docs/papers/map.md §1.4 (counts for complete classes), §7 no. 5 (norm 100; the local solvers'
    code does not clip; on Fashion-MNIST nothing reaches it, but with LeNet some methods would diverge).
    """
    rows = {(cell.row, cell.column): cell.config for cell in items()["map/table2"].cells}
    columns = ("FaMnist MLPNet", "CIFAR-10 TFCNN", "CIFAR-100 VGG11", "CINIC-10 ResNet20")
    for column, head, body in zip(columns, (4.0, 7.0, 14.0, 27.0), (1.0, 3.0, 6.0, 13.0), strict=True):
        assert rows["FedRep", column].args == {"head_epochs": head, "body_epochs": body}
        assert head + body == rows["FedRep", column].local.epochs
        assert rows["PerFedAvg", column].args == {"inner_lr": rows["PerFedAvg", column].local.lr}
        assert rows["PerFedAvg", column].local.clip_norm is rows["pFedMe", column].local.clip_norm is None
        assert rows["FedAvg", column].local.clip_norm == (None if column.startswith("FaMnist") else 100.0)
        assert rows["FedAvg", column].args == rows["FedRS", column].args == {}
    assert {
        row for (row, column), run in rows.items() if column == "FaMnist LeNet" and run.local.clip_norm
    } == {
        "FedAvg",
        "Scaffold",
        "ScaRS",
        "ScaMAP",
        "FedDyn",
        "DittoRS",
    }
    item = items()["map/table2"]
    small = next(
        item.at(cell, "proxy")
        for cell in item.cells
        if (cell.row, cell.column) == ("FedRep", "FaMnist LeNet")
    )
    assert small is not None
    assert (small.args, small.local.epochs) == ({"head_epochs": 1.0, "body_epochs": 1.0}, 2.0)
    for cell in items()["map/table3-aggregation"].cells:
        assert cell.config.args == ({"mode": "counts"} if cell.row in ("FedRS", "MAP") else {})


def test_fedmr_s_runs_have_the_sheet_s_settings() -> None:
    """docs/papers/fedmr.md §E1 and §8: 100 and 400 rounds, ten participants of 50 or 100, ten epochs of whole
    batches of 128; ISIC2019 in FLamby's preparation, its centres whole; at proxy scale the μ that were chosen
    for it.
    """
    rows = {
        (cell.row, cell.column): cell.config
        for cell in [*items()["fedmr/table1"].cells, *items()["fedmr/table2"].cells]
    }
    wanted = Local(lr=0.01, momentum=0.9, weight_decay=1e-5, batch_size=128, epochs=10, drop_last=True)
    assert {run.local for run in rows.values()} == {wanted}
    assert {(run.federation.rounds, column.startswith("CIFAR100")) for (_, column), run in rows.items()} == {
        (100, False),
        (400, True),
    }
    for column, part in {
        "CIFAR10 P10C3": 1.0,
        "CIFAR10 P50C3": 0.2,
        "CIFAR100 P100C10": 0.1,
        "ISIC2019 Real": 1.0,
    }.items():
        assert rows["FedMR", column].federation.participation == part
    # All data sets (docs/papers/fedmr.md §E4); its accuracies are of the tables' runs
    cost = items()["fedmr/fig4"].cells
    assert len(cost) == len({(cell.row, cell.column) for cell in cost}) == 10 * (4 * 5 + 1)
    assert {cell.column.split()[0] for cell in cost} == {"FMNIST", "SVHN", "CIFAR10", "CIFAR100", "ISIC2019"}
    assert all(cell.config == rows[cell.row, cell.column] for cell in cost if cell.row in FEDMR_METHODS)
    lesions = rows["FedAvg", "ISIC2019 Real"]
    assert (lesions.data.transform, lesions.data.local_test, lesions.model.name) == (
        "fedmr",
        0.0,
        "efficientnet_b0",
    )
    third = items()["fedmr/table3"]
    cheap = [run for cell in third.cells for scale in ("proxy", "full") if (run := third.at(cell, scale))]
    # Counting takes no training
    assert {(run.federation.rounds, run.local.steps(6000)) for run in cheap} == {(1, 1)}
    first = items()["fedmr/table6"]
    proxies = {(cell.row, cell.column): first.at(cell, "proxy") for cell in first.cells}
    chosen = {row: proxies[row, "FMNIST P5C2"].args for row, _ in proxies}  # type: ignore[union-attr]
    assert chosen["FedMR(inter=on,intra=on)"] == CHOSEN["SimpleCNN", "P5C2"]
    assert chosen["FedMR(inter=on,intra=off)"] == {**CHOSEN["SimpleCNN", "P5C2"], "mu1": 0.0}
    assert chosen["FedMR(inter=off,intra=off)"] == {"mu1": 0.0, "mu2": 0.0}


def test_every_run_of_mpfedcon_has_the_common_settings() -> None:
    """docs/papers/mpfedcon.md §4: SGD 0.01, momentum 0.5, batch 10, weight decay 1e-4, r = 0.1, τ_h = 10 (a
    default: docs/papers/mpfedcon.md §4); 100 rounds, 200 of FEMNIST and in table 2's second columns and table
    3; M-F7/8: E in 1, 5, 10, 20.
    """
    names = ("table1", "table2", "table3", "table4", "fig6", "fig7", "fig8", "fig9", "claims")
    cells = [(name, cell) for name in names for cell in items()[f"mpfedcon/{name}"].cells]
    assert len(cells) > 200
    for name, cell in cells:
        run = cell.config
        usual = 1.0 if run.data.dataset == "cifar10" else 5.0
        epochs = float(cell.column.removeprefix("E=")) if name in ("fig7", "fig8") else usual
        assert run.local == Local(lr=0.01, momentum=0.5, weight_decay=1e-4, batch_size=10, epochs=epochs)
        assert (run.federation.participation, run.args.get("head_epochs", 10.0)) == (0.1, 10.0)
        long = run.data.dataset == "femnist-letters" or name == "table3" or cell.column.endswith("T=200")
        assert run.federation.rounds == (200 if long else 100)
        encoder = {"fedrep": "body_epochs", "mpfedcon": "encoder_epochs"}.get(run.method)
        assert encoder is None or run.args[encoder] == epochs
    for name in ("fig7", "fig8"):
        assert {cell.column for cell in items()[f"mpfedcon/{name}"].cells} == {"E=1", "E=5", "E=10", "E=20"}
        assert {cell.config.data.split for cell in items()[f"mpfedcon/{name}"].cells} == {"equal:100:5"}


def test_mpfedcon_s_data_and_networks_are_the_sheet_s() -> None:
    """docs/papers/mpfedcon.md §EC: CIFAR cropped and flipped; §EA5: ten letters, a tenth held out;
    docs/papers/mpfedcon.md §1: the encoders' parameters.
    """
    rows = {cell.column: cell.config for cell in items()["mpfedcon/table1"].cells if cell.row == "MpFedcon"}
    sizes = {
        "CIFAR10 (100,2)": (10, 307_192),
        "CIFAR100 (100,20)": (100, 1_062_144),
        "FEMNIST (150,3)": (10, 533_248),
    }
    for column, (classes, encoder) in sizes.items():
        run = rows[column]
        info = DATASETS[run.data.dataset]
        assert info.num_classes == classes
        net = build(run.model.name, info.shape, classes, 0, **run.model.args)
        assert (
            sum(p.numel() for name, p in net.named_parameters() if name.startswith("body.encoder."))
            == encoder
        )
        style = "map" if column.startswith("CIFAR") else "auto"
        assert run.data.transform == style
        assert style == "auto" or transform_for(run.data.dataset, style).augments
    assert LogNormalSizes.default_local_test == 0.1
    assert rows["FEMNIST (150,3)"].data.split == "lognormal:150:3"


def test_the_runs_of_fedmr_s_table_7_measure_eigenvalues_and_those_of_figure_4_memory() -> None:
    """Table 7's runs are Table 1's too: one that measures and one that does not would be trained twice."""
    seventh, first, costs = (
        {(cell.row, cell.column): cell.config for cell in items()[f"fedmr/{name}"].cells}
        for name in ("table7", "table1", "fig4")
    )
    assert all(config.federation.asks("spectrum") for config in seventh.values())
    shared = seventh.keys() & first.keys()
    assert len(shared) == 7 * 5
    assert all(seventh[place].identity() == first[place].identity() for place in shared)
    assert all(config.federation.asks("memory") for config in costs.values())
