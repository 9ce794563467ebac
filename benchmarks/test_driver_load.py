"""What the driver of many simulated actors receives."""

from __future__ import annotations

from benchmarks.driver_load import lines


def test_sums_by_node_bring_the_driver_one_upload_from_each_other_node() -> None:
    """1,024 actors on 32 nodes: 992 uploads of 8 bytes a weight arrive at the driver's node, or 31."""
    at_driver, by_node = lines(1000, 1024, 32)
    each = 8 * 1000 + 300
    assert (at_driver["in_mb"], by_node["in_mb"]) == (992 * each / 1e6, 31 * each / 1e6)
    assert at_driver["out_mb"] == by_node["out_mb"]
