"""A result as registries of results take it: a record of Every Eval Ever, and ``.eval_results/*.yaml`` of the Hub.

The record (https://github.com/evaleval/every_eval_ever) has the form of version 0.2.2 of its ``eval.schema.json``.
Counts of a receipt are bands, which the schema's whole numbers cannot hold: they stand as text in the score's details.

The Hub's form is that of https://huggingface.co/docs/hub/eval-results as `huggingface_hub` writes it. One file holds
one number, the headline figure, as a fraction. Its task is that of the split and the metric in the dataset's
``eval.yaml``; a metric without a task is refused. A ``verifyToken`` is made by the Hub's own jobs alone: there is none
here, and the receipt is in the notes.
"""

from __future__ import annotations

import re
from math import isinf
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.kinds.hub_tasks import hub_metrics, hub_task
from reveal_bench.metrics import METRICS
from reveal_bench.results.facts import Figure, Result

SCHEMA_VERSION = "0.2.2"
NOT_RECORDED = "not recorded"


def every_eval_ever(
    result: Result, *, at: float, organization: str | None = None, dataset: str | None = None, url: str | None = None
) -> dict[str, Any]:
    """The record as JSON values.

    Parameters
    ----------
    at : when the record is made, seconds since 1970
    organization : who ran the evaluation
    dataset : repository of the benchmark on the Hugging Face Hub, "organization/name"
    url : address of `organization`, such as the leaderboard's

    Raises
    ------
    ValueError
        If the model is not known: a record is of a model.
    """
    if result.model is None:
        raise ArgumentError("model", "must be given: a score document does not name the model, and the record must")
    moment = str(int(at))
    source = {
        "source_name": "reveal-bench score" if result.receipt is None else "reveal-leaderboard",
        "source_type": "evaluation_run",
        "source_organization_name": organization or NOT_RECORDED,
        # whoever scores at home may be anybody; a leaderboard scores what others send
        "evaluator_relationship": "other" if result.receipt is None else "third_party",
        "additional_details": _details(result),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{result.benchmark}/{result.model}/{moment}",
        **({} if result.time is None else {"evaluation_timestamp": result.time}),
        "retrieved_timestamp": moment,
        "source_metadata": source | ({} if url is None else {"source_organization_url": url}),
        "eval_library": {"name": "reveal-bench", "version": result.software.get("reveal-bench", "unknown")},
        "model_info": {
            "name": result.model,
            "id": result.model,
            **({} if result.team is None else {"additional_details": {"submitted_by": result.team}}),
        },
        "evaluation_results": [
            _entry(result, figure, dataset)
            for figure in result.figures
            if figure.metric in METRICS and not isinf(METRICS[figure.metric].high)  # the schema wants both ends
        ],
    }


def _details(result: Result) -> dict[str, str]:
    """Facts of the whole result that the schema has no field for, as texts."""
    facts = {
        "prediction_file_sha256": result.file_sha256,
        "references_sha256": result.references_sha256,
        "allow_missing": str(result.allow_missing).lower(),
        "submission": result.submission,
        "part": result.part,
        "note": result.caveat,
    }
    if result.receipt is not None:
        signed = result.receipt
        facts |= {"receipt_sha256": signed.hash, "receipt_number": str(signed.number), "receipt_key_id": signed.key_id}
    return {name: value for name, value in facts.items() if value is not None}


def _entry(result: Result, figure: Figure, dataset: str | None) -> dict[str, Any]:
    metric = METRICS[figure.metric]
    return {
        "evaluation_result_id": f"{figure.metric}/{figure.finding}",
        "evaluation_name": f"{result.title}, {figure.finding}",
        "source_data": _source_data(result, dataset),
        "metric_config": {
            "evaluation_description": f"{metric.formula}; undefined: {metric.undefined}",
            "metric_id": f"reveal-bench.{metric.name}",
            "metric_name": metric.title,
            "lower_is_better": metric.better == "lower",
            "score_type": "continuous",
            "min_score": metric.low,
            "max_score": metric.high,
            "additional_details": {"better": metric.better, "version": str(metric.version)},
        },
        "score_details": {
            "score": float(figure.value),
            "details": {
                name: text
                for name, text in (("finding", figure.finding), ("n", figure.n), ("signature", figure.signature))
                if text is not None
            },
            **_uncertainty(figure),
        },
    }


def _source_data(result: Result, dataset: str | None) -> dict[str, Any]:
    details = {"version": result.version, "split": result.split, "references_sha256": result.references_sha256}
    if dataset is None:
        return {"dataset_name": result.title, "source_type": "other", "additional_details": details}
    hub = {"source_type": "hf_dataset", "hf_repo": dataset, "hf_split": result.split}
    return {"dataset_name": result.title, **hub, "additional_details": details}


def _uncertainty(figure: Figure) -> dict[str, Any]:
    if figure.low is None or figure.high is None:
        return {}
    interval: dict[str, Any] = {"lower": float(figure.low), "upper": float(figure.high), "confidence_level": 0.95}
    if figure.method is not None:
        interval["method"] = figure.method
    uncertainty: dict[str, Any] = {"confidence_interval": interval}
    if figure.n_cases is not None:
        uncertainty["num_samples"] = figure.n_cases
    if figure.n_resamples is not None:
        uncertainty["num_bootstrap_samples"] = figure.n_resamples
    return {"uncertainty": uncertainty}


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
    """Text of a file for the folder ``.eval_results`` of a model's repository.

    Parameters
    ----------
    dataset : repository of the benchmark, "organization/name"
    metric : of the figure; by default the metric that ranks
    revision : commit of the dataset, 40 hexadecimal digits
    url : address where the result is shown, such as the entry's page on the leaderboard

    Raises
    ------
    ValueError
        If an argument is not of its form, there is no such figure, or its metric is no task of ``eval.yaml``.
    """
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    if not _REPO.fullmatch(dataset):
        raise ArgumentError("dataset", "must be 'organization/name' of a dataset on the Hub", repr(dataset))
    if revision is not None and not _REVISION.fullmatch(revision):
        raise ArgumentError("revision", "must be a commit, 40 hexadecimal digits", repr(revision))
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
    interval = None if ends is None else f"95 % interval {' to '.join(ends)}"
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
