"""The manifests of cluster/kuberay against the schemas that KubeRay publishes (tests/cluster/crds.py)."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cluster.crds import FILES, PART, cut, manifests, published, strict

FOLDER = os.environ.get("RAFFED_KUBERAY_CRDS")
PARTS = json.loads(PART.read_text())
WRITTEN = json.loads(PART.with_name("kuberay_schema.json").read_text())["$defs"]


def properties(schema: Mapping[str, Any], *way: str) -> set[str]:
    for name in way:
        schema = schema["properties"][name]
        schema = schema.get("items", schema)
    return set(schema["properties"])


@pytest.mark.parametrize("kind", FILES)
def test_the_published_schema_accepts_every_manifest_and_has_all_of_its_fields(kind: str) -> None:
    found = manifests(kind)
    assert found
    for one in found:
        jsonschema.validate(one, PARTS[kind])


def wrong() -> list[tuple[str, object]]:
    """(Place in a RayJob, value that is wrong there)."""
    head = "spec.rayClusterSpec.headGroupSpec"
    return [
        ("spec.entrypont", "raffed run"),
        (f"{head}.rayStartParams.num-cpus", 0),
        (f"{head}.serviceType", 1),
        (f"{head}.template.spec.container", []),
        ("spec.rayClusterSpec.workerGroupSpecs", {}),
        ("spec.rayClusterSpec.authOptions.mode", "tokens"),
        ("spec.shutdownAfterJobFinishes", "yes"),
        ("spec.ttlSecondsAfterFinished", "600"),
    ]


@pytest.mark.parametrize(("place", "value"), wrong(), ids=[place for place, _ in wrong()])
def test_the_published_schema_finds_what_is_wrong(place: str, value: object) -> None:
    job: Any = copy.deepcopy(manifests("RayJob")[0])
    *way, last = place.split(".")
    part = job
    for name in way:
        part = part[name]
    part[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, PARTS["RayJob"])


def test_the_schema_that_is_written_down_here_has_the_fields_of_the_published_one() -> None:
    """kuberay_schema.json also knows what the operator refuses later."""
    cluster = PARTS["RayCluster"]["properties"]["spec"]
    assert set(WRITTEN["cluster"]["properties"]) == properties(cluster)
    assert set(WRITTEN["job"]["properties"]) == properties(PARTS["RayJob"]["properties"]["spec"])
    for group in ("headGroupSpec", "workerGroupSpecs"):
        assert properties(WRITTEN["cluster"], group) == properties(cluster, group)


@pytest.mark.slow
@pytest.mark.skipif(FOLDER is None, reason="RAFFED_KUBERAY_CRDS names no folder with the CRDs of KubeRay")
@pytest.mark.parametrize("kind", FILES)
def test_the_whole_published_schema_accepts_every_manifest_and_the_part_is_cut_from_it(kind: str) -> None:
    folder = Path(str(FOLDER))
    for one in manifests(kind):
        jsonschema.validate(one, strict(published(folder, kind)))
    assert cut(folder)[kind] == PARTS[kind]
