"""Export questions as a task of lmms-eval, for models that run there, and import the samples that it logs.

Conventions
-----------
An export is a self-contained folder, which lmms-eval uses without reveal-bench. ``questions.parquet`` has a row per
question, with messages as JSON that name images by the SHA-256 of their file. ``pictures/`` has each image file once.
The task's YAML file comes with the Python functions that it names. ``run-settings.json`` has everything that the import
needs, and ``README.md`` has instructions. The only references in an export are the answers of few-shot examples.

lmms-eval logs neither the questions nor usable hashes of them. Therefore the *target* of a question, which lmms-eval
does log, is a digest of the question's messages and the question's id. Samples of another export are refused. lmms-eval
represents a missing reply as the text ``[LMMS_EVAL_REQUEST_FAILED ...]``; here the question's status is then "failed".
Only the HTTP status in such a text is kept, because the rest of the text may name hosts. lmms-eval sends no `detail`
for images, so `detail` is "auto" in an export.

File formats and defaults are those of lmms-eval 0.7.3.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path, PurePath
from string import Template
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.questions import Question
from reveal_bench.models.overlay import Form
from reveal_bench.models.questions import DESCRIBED, AskSettings, Message, ShotUsed, describe_split, list_questions
from reveal_bench.version import __version__

if TYPE_CHECKING:
    from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, Scalar
    from reveal_bench.models.shots import Shot

TASKS: Mapping[Form, str] = {
    "cell": "reveal_grid",
    "point": "reveal_point",
    "box": "reveal_box",
    "boxes": "reveal_boxes",
    "labels": "reveal_labels",
    "text": "reveal_text",
}
"""Form of the answers -> name of the task in lmms-eval."""
QUESTIONS, PICTURES, SETTINGS = "questions.parquet", "pictures", "run-settings.json"
TEMPLATES = Path(__file__).parent / "lmms_eval_tasks"
MODULE = "reveal_questions.py"
MAX_NEW_TOKENS = 2048
"""Maximum tokens of an answer, enough for a chain of thought; lmms-eval's ``--gen_kwargs`` changes this number."""
GROUP_ROWS = 256
RENAMED = {"max_new_tokens": "max_tokens"}
API_BACKENDS = ("openai", "async_openai")
WITHOUT_TEMPERATURE = ("o1", "o3", "o4", "gpt-5")
"""Parts of model names; lmms-eval sends no temperature to models with such a name."""


def export_tasks(folder: Path, split: str, out: Path, settings: AskSettings, *, limit: int | None = None) -> Path:
    """Write the questions of a split as a task of lmms-eval, with this package's messages and images.

    Parameters
    ----------
    folder : dataset folder, built with its images
    out : new folder, which will contain images of the benchmark
    settings : how the questions are asked; `detail` counts as "auto"
    limit : export only this many questions, the first ones

    Returns
    -------
    Path
        The task's YAML file; its name without suffix names the task.

    Raises
    ------
    ValueError
        If `out` exists, the split has no questions, or the folder or the settings are unsuitable.
    """
    out = Path(out)
    if out.exists():
        raise ArgumentError("out", "must be a new folder", f"{out}, which exists")
    settings = replace(settings, detail="auto")
    questions = list_questions(folder, split, settings, limit=limit)
    if not questions:
        raise ArgumentError("split", f"must have questions, {split!r} of {folder} has none")
    asked = {
        "schema": 1,
        **describe_split(folder, split),
        "n_questions": len(questions if limit is None else list_questions(folder, split, settings)),
        "n_asked": len(questions),
        "limit": limit,
        "settings": settings.document(),
        "reveal_bench": __version__,
    }
    scratch = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        (scratch / PICTURES).mkdir(parents=True)
        asked["export"] = _write_questions(scratch, _asked(folder, questions, settings))
        (scratch / SETTINGS).write_text(json.dumps(asked, indent=2) + "\n", encoding="utf-8")
        shutil.copyfile(TEMPLATES / MODULE, scratch / MODULE)
        task = TASKS[settings.form]
        words = {
            **asked,
            "version": asked["benchmark_version"],
            "form": settings.form,
            "style": settings.style,
            "task": task,
            "max_new_tokens": MAX_NEW_TOKENS,
        }
        for template, name in (("task.yaml.template", f"{task}.yaml"), ("README.md.template", "README.md")):
            text = Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)
            (scratch / name).write_text(text, encoding="utf-8")
        scratch.rename(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return out / f"{task}.yaml"


Asked = tuple[Question, Sequence["Shot"], Sequence[Message]]


def _asked(folder: Path, questions: Sequence[Question], settings: AskSettings) -> Iterator[Asked]:
    from reveal_bench.models.pictures import FolderPictures
    from reveal_bench.models.prompts import compose
    from reveal_bench.models.shots import ShotPool

    pictures, pool = FolderPictures(folder), ShotPool(folder, settings)
    for question in questions:
        shots = pool.pick(question)
        yield question, shots, compose(question, settings, pictures=pictures, shots=shots)


def _write_questions(out: Path, asked: Iterator[Asked]) -> str:
    """Write the questions and their images; return the digest of everything that is sent."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in ("id", "sent", "messages", "question", "shots")])
    whole = hashlib.sha256()
    with pq.ParquetWriter(out / QUESTIONS, schema) as writer:
        while rows := [_row(out / PICTURES, *one) for one in islice(asked, GROUP_ROWS)]:
            for row in rows:
                whole.update(f"{row['sent']} {row['id']}\n".encode())
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return whole.hexdigest()


def _row(pictures: Path, question: Question, shots: Sequence[Shot], messages: Sequence[Message]) -> dict[str, str]:
    sent = json.dumps([{"role": m.role, "content": [_part(pictures, part) for part in m.parts]} for m in messages])
    used = [asdict(shot.used) for shot in shots]
    return {
        "id": question.id,
        "sent": hashlib.sha256(sent.encode()).hexdigest(),
        "messages": sent,
        "question": json.dumps(question.document()),
        "shots": json.dumps(used),
    }


def _part(pictures: Path, part: Any) -> dict[str, str]:
    """Return a part of a message as JSON; an image is written to a file, and the JSON names the file's digest."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    digest = hashlib.sha256(part.png).hexdigest()
    path = pictures / f"{digest}.png"
    if not path.exists():
        path.write_bytes(part.png)
    return {"type": "image", "sha256": digest}


def import_samples(
    paths: Sequence[Path], export: Path, *, model: str | None = None
) -> tuple[RunInfo, list[QuestionOutcome]]:
    """Read the samples that lmms-eval logged for an export (``--log_samples``) as a run.

    Parameters
    ----------
    paths : files ``*_samples_*.jsonl``, or folders that contain them; several files may be parts of a run
        (``--offset``), or repetitions. The latest reply to each question counts, or the latest failure if there is no
        reply
    export : folder that :func:`export_tasks` wrote
    model : name to publish; by default lmms-eval's name for the model, without the folders of a path

    Returns
    -------
    RunInfo, list of QuestionOutcome
        In the order of the manifest. With ``--repeats`` the replies of a question are its epochs; lmms-eval counts the
        tokens of the first reply only. A question that was not asked (``--limit``) has no exchange, and
        :func:`reveal_bench.models.run_folder.write_outputs` counts it as not asked.

    Raises
    ------
    ValueError
        If `export` is not an export, samples are missing, a line is not from this export, or files differ in model or
        parameters.
    """
    from reveal_bench.models.run_folder import RunInfo

    asked, questions = _read_export(Path(export))
    settings = AskSettings.from_document(asked["settings"])
    logs = [_log(path, TASKS[settings.form], model) for path in _sample_files(paths, TASKS[settings.form])]
    for log in logs[1:]:
        if (log.model, log.parameters) != (logs[0].model, logs[0].parameters):
            runs = " and ".join(f"{log.model} {dict(log.parameters)} ({log.path.name})" for log in (logs[0], log))
            raise ArgumentError("paths", "must come from one model with the same parameters", runs)
    exchanges: dict[tuple[str, int], QuestionOutcome] = {}
    versions: dict[str, None] = {}
    for log in logs:
        for sample in _samples(log, questions):
            versions[sample.version] = None
            for exchange in _exchanges(sample, settings, log):
                key = (exchange.question, exchange.epoch)
                if key not in exchanges or exchange.status != "failed" or exchanges[key].status == "failed":
                    exchanges[key] = exchange
    place = {question_id: i for i, question_id in enumerate(questions)}
    info = RunInfo(
        **{name: asked[name] for name in (*DESCRIBED, "n_questions", "n_asked")},
        model=logs[0].model,
        grid=settings.grid,
        settings=settings,
        parameters=logs[0].parameters,
        epochs=max((epoch for _, epoch in exchanges), default=1),
        limit=asked["limit"],
        harness={"lmms_eval": ", ".join(versions)},
    )
    return info, sorted(exchanges.values(), key=lambda exchange: (place[exchange.question], exchange.epoch))


@dataclass(frozen=True, slots=True)
class _Exported:
    question: Question
    sent: str
    shots: tuple[ShotUsed, ...]


@dataclass(frozen=True, slots=True)
class _SampleFile:
    """A file of samples; `counts_tokens` is True if a reply with the maximum number of tokens was cut off."""

    path: Path
    model: str
    parameters: Mapping[str, Scalar]
    counts_tokens: bool


@dataclass(frozen=True, slots=True)
class _Sample:
    """A line of a sample file: the replies to a question, which replies came, and the first reply's token counts."""

    exported: _Exported
    replies: tuple[str, ...]
    came: tuple[str, ...]
    tokens: Mapping[str, int]
    version: str


def _read_export(export: Path) -> tuple[dict[str, Any], dict[str, _Exported]]:
    """Return the contents of ``run-settings.json``, and id -> question."""
    import pyarrow.parquet as pq

    try:
        asked = json.loads((export / SETTINGS).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ArgumentError(
            "export", f"must be a folder that export_tasks wrote, but {export} has no {SETTINGS}"
        ) from None
    if asked.get("schema") != 1:
        raise ValueError(f"{export / SETTINGS}: `schema` must be 1, got {asked.get('schema')!r}")
    questions = {}
    for row in pq.read_table(export / QUESTIONS, columns=["id", "sent", "question", "shots"]).to_pylist():
        shots = tuple(ShotUsed(**shot) for shot in json.loads(row["shots"]))
        questions[row["id"]] = _Exported(Question.from_document(json.loads(row["question"])), row["sent"], shots)
    return asked, questions


def _sample_files(paths: Sequence[Path], task: str) -> list[Path]:
    """Return the sample files, ordered by the time in their names."""
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise ArgumentError("paths", "must exist", path)
        files.update(dict.fromkeys(path.rglob(f"*_samples_{task}.jsonl") if path.is_dir() else [path]))
    if not files:
        names = ", ".join(str(path) for path in paths) or "nothing"
        raise ArgumentError("paths", f"must contain files *_samples_{task}.jsonl (--log_samples)", names)
    return sorted(files, key=lambda path: (path.name, path))


def _log(path: Path, task: str, model: str | None) -> _SampleFile:
    """Read the model from ``*_results.json`` in the same folder; if there is no such file, `model` must be given."""
    beside = path.with_name(path.name.partition("_samples_")[0] + "_results.json")
    if not beside.is_file():
        if model is None:
            raise ArgumentError("model", f"must be given, because the folder of {path} has no {beside.name}")
        return _SampleFile(path, model, {}, counts_tokens=False)
    try:
        results = json.loads(beside.read_bytes())
        backend, batch = str(results["config"]["model"]), str(results["config"]["batch_size"])
        named = str(results["model_name"])
        sent = results["configs"][task]["generation_kwargs"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{beside} is not an lmms-eval results file for {task}: {_fault(error)}") from None
    parameters: dict[str, Scalar] = {"backend": backend}
    parameters |= {RENAMED.get(key, key): value for key, value in sent.items() if isinstance(value, str | int | float)}
    is_api = backend in API_BACKENDS
    if backend == "openai" and any(part in named for part in WITHOUT_TEMPERATURE):
        parameters.pop("temperature", None)
    name = PurePath(named).name if named.startswith(("/", ".", "~")) else named
    # a local model's batch is padded to its longest reply, and lmms-eval counts the padding
    return _SampleFile(path, model or name or backend, parameters, counts_tokens=is_api or batch == "1")


def _fault(error: Exception) -> str:
    """Return what is wrong with a document, in words."""
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


def _samples(log: _SampleFile, questions: Mapping[str, _Exported]) -> Iterator[_Sample]:
    with log.path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            place = f"{log.path}:{number}"
            try:
                sample = json.loads(line)
                sent, _, question_id = sample["target"].partition(" ")
                replies = tuple(sample.get("resps", sample["filtered_resps"]))
                came, version = tuple(sample["reveal"]["replies"]), str(sample["reveal"]["lmms_eval"])
                tokens = {name: int(count) for name, count in (sample["token_counts"][0] or {}).items()}
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise ValueError(f"{place} is not a sample of lmms-eval: {_fault(error)}") from None
            if question_id not in questions or questions[question_id].sent != sent:
                rule = f"which lacks {question_id!r} or has other messages for it"
                raise ValueError(f"{place} is not from this export, {rule}")
            if not replies or len(replies) != len(came) or not all(isinstance(reply, str) for reply in replies):
                raise ValueError(f"{place} must have a text for each of its {len(came)} replies, got {replies!r:.200}")
            yield _Sample(questions[question_id], replies, came, tokens, version)


def _exchanges(sample: _Sample, settings: AskSettings, log: _SampleFile) -> Iterator[QuestionOutcome]:
    """Yield the outcome of a question, epoch by epoch."""
    from reveal_bench.models.answers import read_reply
    from reveal_bench.models.run_folder import QuestionOutcome, with_reply

    question = sample.exported.question
    common: dict[str, Any] = {
        "question": question.id,
        "unit": question.unit,
        "finding": question.finding,
        "shots": sample.exported.shots,
    }
    temperature = log.parameters.get("temperature")
    for epoch, (text, came) in enumerate(zip(sample.replies, sample.came, strict=True), start=1):
        if came == "failed":
            yield QuestionOutcome(status="failed", error=_reason(text), epoch=epoch, **common)
            continue
        text = "" if came == "empty" else text  # lmms-eval writes "None" for an empty reply
        # 0 input tokens mean that lmms-eval counted words
        is_counted = epoch == 1 and log.counts_tokens and sample.tokens.get("input_tokens") != 0
        tokens = sample.tokens if is_counted else {}
        spent, most = tokens.get("output_tokens"), log.parameters.get("max_tokens")
        stop_reason = "max_tokens" if spent is not None and isinstance(most, int) and spent >= most else None
        reply = read_reply(text, question, settings, stop_reason=stop_reason)
        yield with_reply(
            QuestionOutcome(status=reply.status, epoch=epoch, **common),
            reply,
            text=text,
            stop_reason=stop_reason,
            sent_temperature=float(temperature) if isinstance(temperature, int | float) else None,
            tokens_in=tokens.get("input_tokens"),
            tokens_out=spent,
        )


def _reason(failure: str) -> str:
    """Return the reason for a missing reply, without its wording, which may name hosts or quote keys."""
    if "BUDGET_EXCEEDED" in failure:
        return "lmms-eval's budget of tokens was spent"
    attempts, code = re.search(r"after (\d+) retries", failure), re.search(r"Error code: (\d{3})\b", failure)
    why = f"HTTP {code[1]}" if code else "no reply"
    return f"{why} after {attempts[1]} attempts" if attempts else why
