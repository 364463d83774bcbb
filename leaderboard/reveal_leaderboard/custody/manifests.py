"""Public manifests on their way to a template, as JSON, and their digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from reveal_bench.kinds.findings.records import StudyManifest
from reveal_bench.kinds.localization.records import Manifest, ManifestRow
from reveal_bench.kinds.tasks.records import TaskManifest, TaskQuestion

__all__ = ["AnyManifest", "dump_manifest", "load_manifest", "manifest_digest"]

AnyManifest = Manifest | StudyManifest | TaskManifest


def dump_manifest(manifest: AnyManifest) -> bytes:
    """A manifest as JSON, for :func:`load_manifest`."""
    return json.dumps(asdict(manifest)).encode()  # the order of its rows counts


def load_manifest(data: bytes) -> AnyManifest:
    """The manifest that :func:`dump_manifest` wrote; equal to it."""
    raw = json.loads(data)
    if "studies" in raw:
        return StudyManifest(**{**raw, "labels": tuple(raw["labels"]), "studies": tuple(raw["studies"])})
    if "tasks" in raw:
        tasks = (TaskQuestion(**{**task, "images": _sizes(task["images"])}) for task in raw["tasks"])
        return TaskManifest(**{**raw, "tasks": tuple(tasks)})
    rows = {key: ManifestRow(**{**row, "asked": tuple(row["asked"])}) for key, row in raw["rows"].items()}
    return Manifest(**{**raw, "findings": tuple(raw["findings"]), "rows": rows})


def _sizes(images: dict[str, list[int]]) -> dict[str, tuple[int, int]]:
    return {image_id: (height, width) for image_id, (height, width) in images.items()}


def manifest_digest(manifest: AnyManifest) -> bytes:
    """SHA-256 of all that a manifest says, the order of its rows included, 32 bytes."""
    facts = asdict(manifest)
    if isinstance(manifest, Manifest):
        facts["rows"] = list(facts["rows"].values())
    if isinstance(manifest, TaskManifest):
        for task in facts["tasks"]:
            task["images"] = list(task["images"].items())
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
