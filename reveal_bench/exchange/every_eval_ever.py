"""Write a result as a record of Every Eval Ever 0.3.0, with its cases in a second file if these may be public.

Source: https://github.com/evaleval/every_eval_ever, ``eval.schema.json`` and ``instance_level_eval.schema.json``. A
record is ``data/<benchmark>/<developer>/<model>/<uuid>.json``; its cases are ``<uuid>_samples.jsonl`` in the same
folder. The UUID looks like version 4, as the registry demands, but is made from the record's content. The same result
therefore gives the same file name, and another name if the record has cases. A receipt states count ranges, for which
the schema's whole numbers are unsuitable. These ranges are text in the details of a score.

Cases in the registry are public. The rule of `publish` for public repositories therefore applies: cases must belong to
a released split of open or synthetic data. A case has the question's ids, the prediction and the score, but never the
reference. A receipt has no cases. A score document has cases only for scores that are means of hits and misses.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import isinf
from pathlib import Path
from typing import Any, Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.evaluation.score import hash_references, lint_file
from reveal_bench.exchange.facts import Figure, Result
from reveal_bench.files import file_sha256, write_all
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import open_folder, read_folder_info
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.metrics import METRICS
from reveal_bench.predictions.limits import LintOptions

Json = dict[str, Any]
Deployment = Literal["self_deployed", "externally_managed", "unknown"]
Availability = Literal["open_weights", "closed_weights", "unknown"]

SCHEMA_VERSION = "0.3.0"
NOT_RECORDED = "not recorded"
HITS = ("point_hit", "grid_hit")
"""Metrics whose score for a finding is the mean of hits (1) and misses (0) over cases."""
_PART = re.compile(r'[^<>:"/\\|?*\x00-\x1f]*[^<>:"/\\|?*\x00-\x1f. ]')
_RESERVED = re.compile(r"(?i)(data|con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Facts of an evaluation that a result does not have.

    Attributes
    ----------
    at : time at which the result was made, in seconds since 1970
    organization, url : the organization that ran the evaluation, and its web address, such as the leaderboard's
    dataset : repository of the benchmark on the Hugging Face Hub, "organization/name"
    developer : developer of the model, if its name is not "developer/name"
    deployment, availability : whether the evaluator ran the model itself, and whether the model's weights are open
    """

    at: float
    organization: str | None = None
    url: str | None = None
    dataset: str | None = None
    developer: str | None = None
    deployment: Deployment = "unknown"
    availability: Availability = "unknown"


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its cases, in the format of the registry's files.

    Attributes
    ----------
    document : the record, as JSON values
    name : UUID of the record
    folder : path in the registry, such as "data/chexlocalize/acme/model"; "" if the developer is unknown
    cases : lines of ``<uuid>_samples.jsonl``
    """

    document: Json
    name: str
    folder: str
    cases: Sequence[str] = ()

    def write(self, root: Path) -> list[Path]:
        """Write the files below `root`, replacing those of an earlier export, and return their paths.

        Raises
        ------
        ValueError
            If the model's developer, who is part of the registry's paths, is unknown.
        """
        if not self.folder:
            rule = "must be given, because the registry's paths contain the model's developer"
            raise ArgumentError("developer", rule, "a model whose name is not 'developer/name'")
        place = root / self.folder
        place.mkdir(parents=True, exist_ok=True)
        files = {place / f"{self.name}.json": json.dumps(self.document, indent=2) + "\n"}
        if self.cases:
            files[place / f"{self.name}_samples.jsonl"] = "".join(self.cases)
        write_all(files)
        return list(files)


def made_at(result: Result, file: Path) -> float:
    """Return the time at which a result was made: the receipt's time, or when a score document was last changed."""
    return file.stat().st_mtime if result.time is None else datetime.fromisoformat(result.time).timestamp()


def every_eval_ever(
    result: Result, evaluation: Evaluation, *, folder: Path | None = None, predictions: Path | None = None
) -> Record:
    """Return the record of a result.

    Parameters
    ----------
    folder, predictions : dataset folder and prediction file of a score document; needed only for a record with cases

    Raises
    ------
    ValueError
        If the model is unknown, `developer` contradicts the model's name, or the cases may not be public or belong to
        another result.
    """
    if result.model is None:
        raise ArgumentError("model", "must be given, because a record names the model and a score document does not")
    developer = _developer(result.model, evaluation.developer)
    document = _document(result, evaluation, developer)
    place = _folder(result.benchmark, result.model, developer)
    lines = []
    if predictions is not None and folder is not None:
        lines = [json.dumps(case) + "\n" for case in _cases(result, document, folder, predictions)]
    if not lines:
        return Record(document, _uuid(document), place)
    cases = {"format": "jsonl", "hash_algorithm": "sha256", "total_rows": len(lines)}
    name = _uuid(document | {"detailed_evaluation_results": cases})  # a record without cases has another name
    document["detailed_evaluation_results"] = cases | {
        # There is no folder if the developer is unknown.
        "file_path": f"{place}/{name}_samples.jsonl".removeprefix("/"),
        "checksum": hashlib.sha256("".join(lines).encode()).hexdigest(),
    }
    return Record(document, name, place, lines)


def _uuid(document: Mapping[str, Any]) -> str:
    """Return a UUID made from a record without its times; it looks like version 4, as the registry demands."""
    moments = ("evaluation_id", "retrieved_timestamp", "evaluation_timestamp")
    content = {name: value for name, value in document.items() if name not in moments}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def _developer(model: str, developer: str | None) -> str | None:
    """Return the developer in a model's name or, if the name has none, the developer that the caller states.

    None without either.
    """
    maker, slash, _ = model.partition("/")
    if slash and developer not in (None, maker):
        raise ArgumentError("developer", f"must be the developer in the model's name, {maker!r}", repr(developer))
    return maker if slash else developer


def _folder(benchmark: str, model: str, developer: str | None) -> str:
    """Return the registry's path for a model, by the rules of the registry's `datastore_path_components`.

    The path is "" if the developer is unknown.
    """
    if developer is None:
        return ""
    name = model.removeprefix(f"{developer}/")
    parts = (benchmark, developer, name.replace("/", "_"))
    for part in parts:
        if not _PART.fullmatch(part) or _RESERVED.fullmatch(part):
            raise ArgumentError("model", "must have names that can be folders on every system", repr(part))
    return "/".join(("data", *parts))


def _document(result: Result, evaluation: Evaluation, developer: str | None) -> Json:
    moment = str(int(evaluation.at))
    source = {
        "source_name": "reveal-bench score" if result.receipt is None else "reveal-leaderboard",
        "source_type": "evaluation_run",
        "source_organization_name": evaluation.organization or NOT_RECORDED,
        # anyone may score locally; a leaderboard scores files that others send
        "evaluator_relationship": "other" if result.receipt is None else "third_party",
        "additional_details": _details(result),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{result.benchmark}/{result.model}/{moment}",
        **({} if result.time is None else {"evaluation_timestamp": result.time}),
        "retrieved_timestamp": moment,
        "source_metadata": source | ({} if evaluation.url is None else {"source_organization_url": evaluation.url}),
        "eval_library": {"name": "reveal-bench", "version": result.software.get("reveal-bench", "unknown")},
        "model_info": _model(result, evaluation, developer),
        "evaluation_results": [
            _entry(result, figure, evaluation.dataset) for figure in result.figures if figure.metric in METRICS
        ],
    }


def _model(result: Result, evaluation: Evaluation, developer: str | None) -> Json:
    details: dict[str, str] = {"deployment_type": evaluation.deployment, "model_availability": evaluation.availability}
    if result.team is not None:
        details["submitted_by"] = result.team
    maker = {} if developer is None else {"developer": developer}
    return {"name": result.model, "id": result.model, **maker, "additional_details": details}


def _details(result: Result) -> dict[str, str]:
    """Return the facts of the whole result for which the schema has no field, as texts."""
    facts = {
        "prediction_file_sha256": result.file_sha256,
        "references_sha256": result.references_sha256,
        "allow_missing": str(result.allow_missing).lower(),
        "submission": result.submission,
        "part": result.part,
        "asked": result.asked,
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
            **({"metric_unit": "proportion"} if (metric.low, metric.high) == (0, 1) else {}),
            "lower_is_better": metric.better == "lower",
            "score_type": "continuous",
            "min_score": metric.low,
            "max_score": "Infinity" if isinf(metric.high) else metric.high,
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


def _cases(result: Result, document: Json, folder: Path, predictions: Path) -> Iterator[Json]:
    """Yield the cases of a result, one per question and hit rate, in the format of the registry's instances."""
    _check_public(result, folder)
    _check_files(result, folder, predictions)
    opened, options = open_folder(folder), ScoringOptions.of_protocol(result.protocol)
    kind = KINDS[opened.info.kind]
    if (result.asked or "") != opened.part(result.split, kind.items):
        rule = "must be left out: the scores are of a part of the split"
        raise ArgumentError("predictions", rule, result.asked or "the whole split")
    report = lint_file(predictions, opened, result.split, LintOptions(options.grid, options.allow_missing))
    manifest = kind.questions.read_manifest(opened, result.split)
    references = kind.data.read_references(opened, result.split)
    table = kind.scoring.score(report.predictions, references, manifest, options, ()).to_table()
    hits = [name for name in HITS if name in table.column_names]
    if not hits:
        raise ArgumentError("predictions", "must belong to a benchmark that counts hits per case", result.benchmark)
    answers: dict[tuple[str, str], list[str]] = {}
    for prediction in report.predictions:
        fields = {name: value for name, value in asdict(prediction).items() if value not in (None, ())}
        fields.pop("line", None)
        answers.setdefault((fields[kind.key], fields["finding"]), []).append(json.dumps(fields))
    names = {entry["evaluation_result_id"]: entry["evaluation_name"] for entry in document["evaluation_results"]}
    for row in table.select([kind.key, "finding", *hits]).to_pylist():
        question = (row[kind.key], row["finding"])
        for metric in hits:
            result_id = f"{metric}/{row['finding']}"
            if row[metric] is not None and result_id in names:
                yield {
                    "schema_version": SCHEMA_VERSION,
                    "evaluation_id": document["evaluation_id"],
                    "model_id": document["model_info"]["id"],
                    "evaluation_name": names[result_id],
                    "evaluation_result_id": result_id,
                    **_case(question, kind.display.question, answers.get(question, []), row[metric]),
                }


def _check_files(result: Result, folder: Path, predictions: Path) -> None:
    """Refuse predictions or references that differ from the scored ones."""
    for name, digest, sha256 in (
        ("predictions", file_sha256(predictions), result.file_sha256),
        ("folder", hash_references(folder, result.split), result.references_sha256),
    ):
        if digest != sha256:
            raise ArgumentError(name, f"must be those of the result, with SHA-256 {sha256}", digest)


def _check_public(result: Result, folder: Path) -> None:
    """Refuse cases that may not be public, by the rule in the module's docstring."""
    if result.receipt is not None:
        raise ArgumentError("predictions", "must be left out: a receipt releases scores but no cases")
    info = read_folder_info(folder)
    if (info.benchmark, info.version) != (result.benchmark, result.version):
        raise ArgumentError(
            "folder", f"must contain {result.benchmark} {result.version}", f"{info.benchmark} {info.version}"
        )
    if info.splits.get(result.split, {}).get("references") != "public":
        raise ArgumentError("folder", f"must have the split {result.split} with public references", folder)
    benchmark = BENCHMARKS.get(info.benchmark)
    if not info.synthetic and (benchmark is None or benchmark.licence != "open"):
        rule = "must be left out: the registry is public, and the source's terms forbid passing cases on"
        raise ArgumentError("predictions", rule, info.benchmark)


def _case(question: tuple[str, str], asked: str, answers: Sequence[str], score: float) -> Json:
    """Return the fields of a case, except those that identify the case's record."""
    key, finding = question
    content = {"raw": f"{asked} {finding}, {key}", "reference": []}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))  # the registry computes this hash in the same way
    attribution = {"turn_idx": 0, "source": "output.raw", "extraction_method": "prediction file", "is_terminal": True}
    return {
        "sample_id": f"{key}/{finding}",
        "sample_hash": hashlib.sha256(text.encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": content,
        "output": {"raw": list(answers)},
        "answer_attribution": [attribution | {"extracted_value": answer} for answer in answers],
        "evaluation": {"score": float(score), "is_correct": score == 1},
        **({} if answers else {"error": "no answer, which counts as a miss"}),
    }
