"""The frame of FedLoGe: sparse, as published, or dense, which its ablation compares."""

from __future__ import annotations

SPACE = {"frame": ["sparse_etf", "etf"]}
