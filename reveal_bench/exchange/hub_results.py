"""Write a result for a model's page on the Hugging Face Hub, as a file ``.eval_results/*.yaml``.

The format is that of https://huggingface.co/docs/hub/eval-results, as `huggingface_hub` writes it. A file contains one
number, the headline score, as a fraction. The file also names a task in the dataset's ``eval.yaml``, which belongs to
the split and the metric; a metric without a task is refused. Only the Hub's own jobs make a ``verifyToken``, so the
file has none; its notes contain the receipt.
"""

from __future__ import annotations

import re

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.exchange.facts import Figure, Result
from reveal_bench.kinds.hub_tasks import hub_metrics, hub_task

_REPO = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{40}")


def eval_results(
    result: Result,
    *,
    dataset: str,
    metric: str | None = None,
    revision: str | None = None,
    url: str | None = None,
) -> str:
    """Return the text of a file for the folder ``.eval_results`` of a model's repository.

    Parameters
    ----------
    dataset : repository of the benchmark, "organization/name"
    metric : metric of the score; by default the metric used for ranking
    revision : commit of the dataset, 40 hexadecimal digits
    url : address where the result is shown, such as the entry's page on the leaderboard

    Raises
    ------
    ValueError
        If an argument is invalid, the result is of a part of a split, the score does not exist, or its metric is not a
        task in ``eval.yaml``.
    """
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    if not _REPO.fullmatch(dataset):
        raise ArgumentError("dataset", "must be 'organization/name' of a dataset on the Hub", repr(dataset))
    if revision is not None and not _REVISION.fullmatch(revision):
        raise ArgumentError("revision", "must be a commit, 40 hexadecimal digits", repr(revision))
    if result.asked is not None:
        raise ArgumentError("result", "must be of a whole split, which is the task in eval.yaml", result.asked)
    figure = result.headline(metric)
    benchmark = BENCHMARKS.get(result.benchmark)
    tasks = hub_metrics(benchmark) if benchmark is not None else (figure.metric,)
    if figure.metric not in tasks:
        raise ArgumentError("metric", f"must have a task in eval.yaml: {', '.join(tasks)}", figure.metric)
    entry = EvalResultEntry(
        dataset_id=dataset,
        task_id=hub_task(result.benchmark, result.split, figure.metric),
        value=float(figure.value),
        dataset_revision=revision,
        date=result.time,
        source_url=url,
        source_name=None if url is None else _source(result),
        notes=_notes(result, figure),
    )
    return yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, width=120, allow_unicode=True)


def _source(result: Result) -> str:
    return "reveal-bench score" if result.receipt is None else f"leaderboard entry {result.submission}"


def _notes(result: Result, figure: Figure) -> str:
    ends = result.interval(figure)
    interval = None if ends is None else f"95% interval {' to '.join(ends)}"
    signed = None if result.receipt is None else f"receipt {result.receipt.hash}"
    parts = (
        figure.what,
        figure.scale,
        interval,
        f"n {figure.count}",
        result.place,
        figure.signature,
        signed,
        result.caveat,
    )
    return "; ".join(part for part in parts if part)
