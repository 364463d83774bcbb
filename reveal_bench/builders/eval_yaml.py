"""``eval.yaml``: what the Hub reads to list a dataset as a benchmark.

Fields: `name`, `description`, `evaluation_framework` and `tasks`, each with `id`, `config`, `split`. A split of the
main config is scored at home with ``reveal-bench score``; the inputs of a holdout are scored by the leaderboard alone.
The file asks for nothing by itself: the Hub lists a benchmark once its maintainers have put the repository on their
list.
"""

from __future__ import annotations

from collections.abc import Sequence

from reveal_bench.benchmarks import Benchmark
from reveal_bench.builders.card import Config

__all__ = ["FRAMEWORK", "render_eval_yaml"]

FRAMEWORK = "reveal-bench"
INPUTS = "holdout_inputs"
QUESTIONS = {
    "localization": "Where is each finding of a chest radiograph? Answers are points, grid cells, boxes or masks.",
    "findings": "Which findings does a chest radiography study show? Answers are labels or probabilities.",
    "tasks": "Open questions on chest radiography studies. Readers rate the answers.",
}


def render_eval_yaml(benchmark: Benchmark, configs: Sequence[Config], *, version: str) -> str:
    """Text of ``eval.yaml``: one task per split of the main config and of the holdout's inputs.

    Parameters
    ----------
    configs : of the folder; the default one is the main config
    """
    import yaml

    tasks = [
        {"id": f"{benchmark.name}_{split}".replace("-", "_"), "config": config.name, "split": split}
        for config in configs
        if config.default or config.name == INPUTS
        for split in config.splits
    ]
    metric = f"; primary metric {benchmark.metrics[0]}" if benchmark.metrics else ""
    document = {
        "name": benchmark.title,
        "description": f"{QUESTIONS[benchmark.kind]} Version {version}{metric}.",
        "evaluation_framework": FRAMEWORK,
        "tasks": tasks,
    }
    return yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
