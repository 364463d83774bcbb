"""Restrict a split to the questions that runs asked, so that questions that were never asked do not count as misses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import OpenFolder
from reveal_bench.predictions.files import questions_of_run


def select_asked(dataset: OpenFolder, split: str, inputs: Iterable[Any]) -> OpenFolder:
    """Return `dataset` with only the questions that every run among `inputs` asked.

    Other inputs, and runs that asked nothing or the whole split, do not restrict it.

    Parameters
    ----------
    inputs : paths of prediction files and run folders; other values are ignored

    Raises
    ------
    ArgumentError
        If no question was asked by all runs.
    ValueError
        If a run's transcript is damaged.
    """
    kind = KINDS[dataset.info.kind]
    asked = [questions_of_run(Path(one), split, kind.key) for one in inputs if isinstance(one, str | Path)]
    parts = [part for part in asked if part]
    if not parts:
        return dataset
    entries = kind.questions.manifest_entries(kind.questions.read_manifest(dataset, split))
    questions = {(entry[kind.key], finding) for entry in entries for finding in entry["asked"]}
    common = {
        (key, finding)
        for key, finding in questions
        if all((key, finding) in part or (key, None) in part for part in parts)
    }
    if not common:
        raise ArgumentError("predictions", "must answer some of the same questions", "runs that share no question")
    if common == questions:
        return dataset
    keys = frozenset(key for key, _ in common)
    is_cut = any(key in keys for key, _ in questions - common)
    return replace(
        dataset, selection=replace(dataset.selection, keys=keys, pairs=frozenset(common) if is_cut else None)
    )
