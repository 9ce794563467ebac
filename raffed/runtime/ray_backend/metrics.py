"""A run's progress as Ray metrics, named ray_raffed_*.

They appear on the dashboard's Grafana and at every node's Prometheus endpoint.
"""

from __future__ import annotations

from typing import Protocol

from ray.util.metrics import Counter, Gauge

GAUGES = {
    "round": "Rounds done",
    "loss": "Mean training loss of the last round",
    "clients_per_second": "Clients trained a second",
    "accuracy": "Of the global model on the global test set, a fraction",
    "stragglers": "Stragglers of the last round",
}
COUNTERS = {
    "bytes_up": "Bytes sent by clients",
    "bytes_down": "Bytes sent to clients",
    "clients": "Clients trained",
}


class Measured(Protocol):
    """What this module reads of a RoundEvent (experiments/events.py), which this layer may not import."""

    @property
    def round(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def accuracy(self) -> float | None: ...
    @property
    def participants(self) -> int: ...
    @property
    def straggling(self) -> int: ...
    @property
    def bytes_up(self) -> int: ...
    @property
    def bytes_down(self) -> int: ...
    @property
    def seconds(self) -> float: ...


class RunMetrics:
    """Metrics of one run, with the label run_id.

    The process that conducts the run calls it after every round.
    """

    def __init__(self, run_id: str) -> None:
        self._gauges = {
            name: Gauge(f"raffed_{name}", text, tag_keys=("run_id",)) for name, text in GAUGES.items()
        }
        self._counters = {
            name: Counter(f"raffed_{name}", text, tag_keys=("run_id",)) for name, text in COUNTERS.items()
        }
        for one in (*self._gauges.values(), *self._counters.values()):
            one.set_default_tags({"run_id": run_id})

    def __call__(self, event: Measured) -> None:
        """Update the metrics.

        Args:
            event: What was measured in a round.
        """
        speed = event.participants / max(event.seconds, 1e-9)
        now = {
            "round": event.round,
            "loss": event.loss,
            "clients_per_second": speed,
            "stragglers": event.straggling,
        }
        for name, value in (now if event.accuracy is None else {**now, "accuracy": event.accuracy}).items():
            self._gauges[name].set(float(value))
        for name, count in (
            ("bytes_up", event.bytes_up),
            ("bytes_down", event.bytes_down),
            ("clients", event.participants),
        ):
            if count:
                self._counters[name].inc(float(count))
