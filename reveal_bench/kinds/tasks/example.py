"""A made-up benchmark of one task: what a process reads to load all that reading takes."""

from __future__ import annotations

from reveal_bench.kinds.tasks.records import CATEGORIES, TaskManifest, TaskQuestion

__all__ = ["example_upload"]


def example_upload() -> tuple[TaskManifest, str]:
    """A manifest, and a file that answers its task."""
    task = TaskQuestion("t", CATEGORIES[0], False, "What is shown?", None, {"i": (8, 8)})
    return TaskManifest("warm-up", "1", "test", (task,)), '{"task_id": "t", "answer": "Nothing."}'
