"""A made-up benchmark of one study: what a process reads to load all that reading takes."""

from __future__ import annotations

from reveal_bench.kinds.findings.records import StudyManifest

__all__ = ["example_upload"]


def example_upload() -> tuple[StudyManifest, str]:
    """A manifest, and a file that names the labels of its study."""
    return StudyManifest("warm-up", "1", "test", ("Normal",), ("a",)), '{"study_id": "a", "labels": ["Normal"]}'
