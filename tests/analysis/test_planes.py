"""Features and proxies in the plane: true angles, ten classes told apart, every proxy to be seen; what
lines mean.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.colors import to_rgb
from raffed.analysis.figures.theme import DARK, LIGHT, class_look, in_the_dark, svg
from raffed.analysis.studies import COLUMNS, Study
from raffed.reproductions.studies.figures.drawing import planes
from raffed.reproductions.studies.figures.map import targeted_classes
from raffed.reproductions.studies.figures.map_two_clients import two_client_demo


def study(
    points: list[tuple[str, str, int, float, float]], values: list[tuple[str, str, float, str, float]]
) -> Study:
    frames = {name: pd.DataFrame(columns=columns) for name, columns in COLUMNS.items()}
    frames["points"] = pd.DataFrame(points, columns=COLUMNS["points"])
    frames["values"] = pd.DataFrame(values, columns=COLUMNS["values"])
    return Study({"name": "s", "scale": "proxy", "seed": 0, "settings": {"shown_round": 1}}, **frames)


def test_ten_classes_have_ten_colours_and_markers_on_both_backgrounds() -> None:
    for theme in (LIGHT, DARK):
        looks = [class_look(label, theme) for label in range(10)]
        assert [len(set(part)) for part in zip(*looks, strict=True)] == [10, 10]
        colours = [to_rgb(colour) for colour, _ in looks]
        apart = [
            sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) ** 0.5
            for a in colours
            for b in colours
            if a != b
        ]
        assert min(apart) > 0.15
    for label in range(10):
        assert in_the_dark(class_look(label, LIGHT)[0]) == class_look(label, DARK)[0]


def test_a_unit_is_as_long_to_the_right_as_upwards() -> None:
    """Features 100 wide and 1 high; the panel is wider than high."""
    points = [("p", "feature", 0, 0.0, 0.0), ("p", "feature", 0, 100.0, 1.0), ("p", "proxy", 0, 1.0, 0.0)]
    figure = planes(study(points, []), [["p"]], range(10))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    (x0, y0), (x1, y1), (x2, y2) = axes.transData.transform([(0, 0), (10, 0), (0, 10)])
    assert abs((x1 - x0) - (y2 - y0)) < 1e-6
    assert abs(y1 - y0) + abs(x2 - x0) < 1e-6


def test_proxies_lie_on_top_of_features_with_an_edge_of_the_paper_s_colour() -> None:
    points = [("p", "proxy", 7, 0.1, 0.1), ("p", "missing proxy", 8, 0.2, 0.1), ("p", "feature", 7, 1.0, 1.0)]
    lines = {
        line.get_zorder(): line
        for line in planes(study(points, []), [["p"]], range(10)).axes[0].get_lines()
        if list(line.get_xdata()) == [1.0]
    }
    proxy = lines[max(lines)]
    assert max(lines) > min(lines)
    assert (proxy.get_markeredgecolor(), proxy.get_markerfacecolor()) == (
        LIGHT.paper,
        class_look(7, LIGHT)[0],
    )


def test_targeted_classes_are_labelled_where_networks_were_trained() -> None:
    values = [
        ("targeted classes", name, n, "accuracy", 0.5)
        for name in ("M1", "M2", "M2 among n")
        for n in (10.0, 20.0, 80.0)
    ]
    axes = targeted_classes(study([], values)).figures[0].figure.axes[0]
    assert list(axes.get_xticks()) == [10, 20, 80]


def test_the_saw_says_what_solid_and_dotted_lines_are() -> None:
    metrics = (
        "accuracy, downloaded",
        "accuracy, personalized",
        "accuracy, aggregated",
        "norm of missing proxies after training",
    )
    values = [
        (method, "client 1", float(round), metric, 0.5)
        for method in ("FedAvg", "MAP")
        for round in (1, 2)
        for metric in metrics
    ]
    drawn = svg(two_client_demo(study([], values)).figures[1].figure)
    assert ">within a round<" in drawn
    assert ">between rounds, to the next download<" in drawn
