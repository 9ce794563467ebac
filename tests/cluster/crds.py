"""The schemas that the KubeRay project publishes, cut down to what cluster/kuberay uses.

They are 2.3 MB, mostly the text of Kubernetes' own types, so kuberay_crds.json has a part of them: of every
object that a manifest fills in, the names and types of all its fields, and what lies below those that are
filled in.

    git -C kuberay archive v1.7.0 helm-chart/kuberay-operator/crds | tar x
    python -m tests.cluster.crds helm-chart/kuberay-operator/crds

writes it anew. `RAFFED_KUBERAY_CRDS=FOLDER make test-slow` checks the manifests against the whole of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).parents[2] / "cluster" / "kuberay"
PART = Path(__file__).with_name("kuberay_crds.json")
FILES = {"RayCluster": "ray.io_rayclusters.yaml", "RayJob": "ray.io_rayjobs.yaml"}
SOURCE = (
    "From helm-chart/kuberay-operator/crds of ray-project/kuberay (Apache License 2.0) at its tag v1.7.0, "
    "version v1 of each, cut down by tests/cluster/crds.py"
)
LIMITS = ("minimum", "maximum", "minItems", "maxItems", "maxLength")
KEPT = ("type", "enum", "format", "pattern", "required", *LIMITS)
FREE = "x-kubernetes-preserve-unknown-fields"
EITHER = "x-kubernetes-int-or-string"


def manifests(kind: str) -> list[Mapping[str, Any]]:
    """The objects of a kind in cluster/kuberay."""
    every = [
        one
        for path in sorted(MANIFESTS.glob("*.yaml"))
        for one in yaml.safe_load_all(path.read_text())
        if one
    ]
    return [one for one in every if one["kind"] == kind]


def published(folder: Path, kind: str) -> dict[str, Any]:
    """The whole schema of a kind, from a folder of CRDs."""
    versions = yaml.load((folder / FILES[kind]).read_text(), yaml.CSafeLoader)["spec"]["versions"]
    (found,) = (one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == "v1")
    return dict(found)


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in which an unknown field is an error, as in `kubectl apply --validate=strict`."""
    made = {name: schema[name] for name in KEPT if name in schema}
    if schema.get(EITHER):
        made["type"] = ["integer", "string"]
    if "items" in schema:
        made["items"] = strict(schema["items"])
    if "properties" in schema:
        made["properties"] = {name: strict(one) for name, one in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), Mapping):
        made["additionalProperties"] = strict(schema["additionalProperties"])
    elif "properties" in schema and not schema.get(FREE):
        made["additionalProperties"] = False
    return made


def part(schema: Mapping[str, Any], values: Sequence[object]) -> dict[str, Any]:
    """The part of a strict schema that `values` reach; of the fields beside it only the type."""
    made = dict(schema)
    if "items" in schema:
        below = [one for value in values if isinstance(value, list) for one in value]
        made["items"] = part(schema["items"], below)
    if "properties" in schema:
        given = [value for value in values if isinstance(value, dict)]
        made["properties"] = {
            name: part(one, [value[name] for value in given if name in value])
            if any(name in value for value in given)
            else {"type": one["type"]}
            if "type" in one
            else {}
            for name, one in sorted(schema["properties"].items())
        }
    return made


def cut(folder: Path) -> dict[str, Any]:
    """What kuberay_crds.json holds."""
    parts = {kind: part(strict(published(folder, kind)), manifests(kind)) for kind in FILES}
    return {"$comment": SOURCE, **parts}


if __name__ == "__main__":
    PART.write_text(json.dumps(cut(Path(sys.argv[1])), sort_keys=True, separators=(",", ":")) + "\n")
