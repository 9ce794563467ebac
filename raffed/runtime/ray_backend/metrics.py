"""A run's progress as Ray metrics: on the dashboard's Grafana and at every node's Prometheus endpoint, as
ray_raffed_*.
"""

from __future__ import annotations

from typing import Any

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


class RunMetrics:
    """Told of every round of one run, by the process that conducts it. Label: run_id."""

    def __init__(self, run_id: str) -> None:
        self._gauges = {
            name: Gauge(f"raffed_{name}", text, tag_keys=("run_id",)) for name, text in GAUGES.items()
        }
        self._counters = {
            name: Counter(f"raffed_{name}", text, tag_keys=("run_id",)) for name, text in COUNTERS.items()
        }
        for one in (*self._gauges.values(), *self._counters.values()):
            one.set_default_tags({"run_id": run_id})

    def __call__(self, event: Any) -> None:
        """`event`: a RoundEvent (experiments/federation.py; layers point one way)."""
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
