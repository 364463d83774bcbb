"""Public manifests on their way to a template, as JSON, and their digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from reveal_bench.records import Manifest, ManifestRow
from reveal_bench.study_records import StudyManifest

__all__ = ["dump_manifest", "load_manifest", "manifest_digest"]


def dump_manifest(manifest: Manifest | StudyManifest) -> bytes:
    """A manifest as JSON, for :func:`load_manifest`."""
    return json.dumps(asdict(manifest)).encode()  # the order of its rows counts


def load_manifest(data: bytes) -> Manifest | StudyManifest:
    """The manifest that :func:`dump_manifest` wrote; equal to it."""
    raw = json.loads(data)
    if "studies" in raw:
        return StudyManifest(**{**raw, "labels": tuple(raw["labels"]), "studies": tuple(raw["studies"])})
    rows = {key: ManifestRow(**{**row, "asked": tuple(row["asked"])}) for key, row in raw["rows"].items()}
    return Manifest(**{**raw, "findings": tuple(raw["findings"]), "rows": rows})


def manifest_digest(manifest: Manifest | StudyManifest) -> bytes:
    """SHA-256 of all that a manifest says, the order of its rows included, 32 bytes."""
    facts = asdict(manifest)
    if isinstance(manifest, Manifest):
        facts["rows"] = list(facts["rows"].values())
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
