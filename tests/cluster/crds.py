"""The manifests of cluster/kuberay, and the part of KubeRay's published schemas that they reach.

kuberay_crds.json has of every object that a manifest fills in the names and types of all its fields, and what
lies below those that are filled in. An unknown field is an error, as in `kubectl apply --validate=strict`. It
was cut from the 2.3 MB of helm-chart/kuberay-operator/crds at KubeRay's tag v1.7.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).parents[2] / "cluster" / "kuberay"
SCHEMAS = json.loads(Path(__file__).with_name("kuberay_crds.json").read_text())


def manifests(kind: str) -> list[Mapping[str, Any]]:
    """The objects of a kind in cluster/kuberay."""
    texts = [path.read_text() for path in sorted(MANIFESTS.glob("*.yaml"))]
    return [one for text in texts for one in yaml.safe_load_all(text) if one and one["kind"] == kind]
