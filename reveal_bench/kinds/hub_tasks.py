"""Tasks of a benchmark on the Hugging Face Hub: each is one metric of one split, because the Hub ranks tasks singly."""

from __future__ import annotations

from reveal_bench.benchmarks import Benchmark
from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS


def hub_task(benchmark: str, split: str, metric: str) -> str:
    """Return the id of a task.

    Examples
    --------
    >>> hub_task("reveal-cxr", "holdout", "f1")
    'reveal_cxr_holdout_f1'
    """
    return f"{benchmark}_{split}_{metric}".replace("-", "_")


def hub_metrics(benchmark: Benchmark, *, released_only: bool = False) -> tuple[str, ...]:
    """Return the metrics that become tasks: those for which higher is better, because the Hub ranks higher values
    first.

    Parameters
    ----------
    released_only : True for only the metrics that a leaderboard shows for its holdout
    """
    released = KINDS[benchmark.kind].release.metrics
    return tuple(
        name
        for name in benchmark.metrics or released
        if METRICS[name].better == "higher" and (name in released or not released_only)
    )
