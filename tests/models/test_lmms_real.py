"""The exported task run by lmms-eval itself, in an environment that knows nothing of this package.

`make soak` runs it. By hand::

    python3 -m venv V && V/bin/pip install lmms-eval==0.7.3
    REVEAL_LMMS_PYTHON=V/bin/python python -m pytest tests/models/test_lmms_real.py

Beside a torch for CPUs alone, torchvision from PyPI does not load: ``V/bin/pip uninstall torchvision timm``.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.questions import Question
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.models import lmms
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.models.prompts import compose
from reveal_bench.models.questions import AskSettings, PromptImage, list_questions
from reveal_bench.models.run_folder import Run, read_run, write_outputs
from reveal_bench.models.shots import ShotPool
from tests.models.conftest import Truth, playing
from tests.models.endpoint import PlayedModel, tokens_of

PYTHON = os.environ.get("REVEAL_LMMS_PYTHON", "")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not PYTHON,
        reason="needs lmms-eval (2.4 GB) in an environment of its own: `make soak`, or set REVEAL_LMMS_PYTHON to its "
        "python, see the top of this file",
    ),
]

KEY = "sk-not-to-be-seen-anywhere"
SETTINGS = AskSettings(style="few-shot", shots=2, shots_split="validation")
FAULTS = (
    ("429", "500"), ("503",), ("hang",), ("malformed",), ("prose",), ("no_usage",),
    ("500",) * 9, ("400",) * 9, ("malformed",) * 9, ("refusal",), ("cut_off",), ("empty",),
)  # fmt: skip
"""Faults of one question each; the run recovers from those in the first line. Nine exceed all retries."""
STATUSES = ("answered",) * 6 + ("failed",) * 3 + ("refused", "unclear", "empty")
"""lmms-eval does not say that a reply was cut off."""
REPEATED, TIMES = 3, 2


@dataclass(frozen=True)
class Done:
    """The requests sent, the files of lmms-eval, and the parsed outcomes."""

    model: PlayedModel
    hits: set[str]
    statuses: dict[str, str]
    export: Path
    logged: Path
    run: Run
    printed: str


class Sent:
    """The pictures of requests, by their pixels: lmms-eval decodes and encodes them, its zlib may be another."""

    def __init__(self, export: Path) -> None:
        self.files = {self.key(path.read_bytes()): path.read_bytes() for path in (export / "pictures").iterdir()}
        self.n = 0

    @staticmethod
    def key(png: bytes) -> str:
        image = Image.open(io.BytesIO(png))
        return hashlib.sha256(f"{image.mode} {image.size}".encode() + image.tobytes()).hexdigest()

    def as_exported(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request with the export's bytes instead of the sent bytes; KeyError if an image differs."""
        body = copy.deepcopy(body)
        for part in (part for message in body["messages"] for part in message["content"] if "image_url" in part):
            got = base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"), validate=True)
            part["image_url"]["url"] = "data:image/png;base64," + base64.b64encode(self.files[self.key(got)]).decode()
            self.n += 1
        return body


def evaluate(export: Path, home: Path, url: str, out: Path, *options: str, backend: str) -> str:
    """Run lmms-eval in the empty folder `home`."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))}
    model_args = f"model_version=org/played-1,base_url={url},timeout=10,max_retries=2,retry_backoff_s=0"
    model_args += {"openai": ",num_concurrent=3", "async_openai": ",num_cpus=3"}[backend]
    command = [PYTHON, "-m", "lmms_eval", "eval", "--model", backend, "--model_args", model_args, "--batch_size", "1"]
    command += ["--include_path", str(export), "--tasks", "reveal_grid", "--log_samples", "--output_path", str(out)]
    done = subprocess.run(
        [*command, *options],
        env={**outside, "HOME": str(home), "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": KEY},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def done(films: Path, truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    """A few-shot run that errs in 30% of the questions; the first of them have the faults above."""
    root = tmp_path_factory.mktemp("lmms-real")
    (root / "home").mkdir()
    lmms.export_tasks(films, "test", root / "export", SETTINGS)
    names = [question for question, _, _ in truth.questions]
    statuses = dict.fromkeys(names, "answered") | dict(zip(names, STATUSES, strict=False))
    sent = Sent(root / "export")
    with playing(truth, error_rate=0.3, faults=dict(zip(names, FAULTS, strict=False))) as (model, hits):
        question_of = model.question_of
        model.question_of = lambda body: question_of(sent.as_exported(body))
        printed = evaluate(root / "export", root / "home", model.url, root / "replies", backend="async_openai")
        info, exchanges = lmms.import_samples([root / "replies"], root / "export")
        write_outputs(root / "run", exchanges, info)
        yield Done(model, hits, statuses, root / "export", root / "replies", read_run(root / "run"), printed)


def test_every_question_is_asked_and_comes_back(done: Done) -> None:
    assert done.model.answered() == Counter([name for name, status in done.statuses.items() if status != "failed"])
    assert {question for question, _ in done.model.asked} == set(done.statuses)
    assert {exchange.question: exchange.status for exchange in done.run.exchanges} == done.statuses
    assert [exchange.question for exchange in done.run.exchanges] == list(done.statuses)
    assert done.run.info.harness == {"lmms_eval": "0.7.3"}
    assert done.run.info.model == "org/played-1"
    failed = [exchange.error for exchange in done.run.exchanges if exchange.status == "failed"]
    assert failed == [f"{why} after 2 attempts" for why in ("HTTP 500", "HTTP 400", "no reply")]


def test_what_is_sent_is_our_messages(done: Done, films: Path) -> None:
    sent, pictures, pool = Sent(done.export), FolderPictures(films), ShotPool(films, SETTINGS)
    questions: dict[str, Question] = {question.id: question for question in list_questions(films, "test", SETTINGS)}
    for (name, _), body in zip(done.model.asked, done.model.bodies, strict=True):
        ours = compose(questions[name], SETTINGS, pictures=pictures, shots=pool.pick(questions[name]))
        assert sent.as_exported(body)["messages"] == [
            {
                "role": message.role,
                "content": [
                    {
                        "type": "image_url",
                        "image_url": {"url": "data:image/png;base64," + base64.b64encode(part.png).decode()},
                    }
                    if isinstance(part, PromptImage)
                    else {"type": "text", "text": part}
                    for part in message.parts
                ],
            }
            for message in ours
        ]
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("org/played-1", 0.0, lmms.MAX_NEW_TOKENS)
    assert sent.n > 2 * len(done.model.bodies), "examples come with pictures"


def test_the_score_is_what_the_model_meant_over_all_questions(done: Done, films: Path) -> None:
    meant = {question for question in done.hits if done.statuses[question] == "answered"}
    scored = score_file(done.run.predictions[0], films, "test", ScoringOptions(allow_missing=True, n_resamples=200))
    per_finding = {e.finding: e for e in scored.estimates if e.metric == "grid_hit" and e.finding != MACRO and e.n}
    asked = Counter(question.partition("|")[2] for question in done.statuses)
    hit = Counter(question.partition("|")[2] for question in meant)
    assert {finding: e.n for finding, e in per_finding.items()} == asked
    assert {finding: round(e.value * e.n, 6) for finding, e in per_finding.items()} == {f: hit[f] for f in asked}


def test_lmms_eval_counts_what_failed(done: Done) -> None:
    (path,) = done.logged.rglob("*_results.json")
    printed, n = json.loads(path.read_text())["results"]["reveal_grid"], len(done.statuses)
    counts = Counter(done.statuses.values())
    assert printed["reveal_failed,replies"] == pytest.approx(counts["failed"] / n)
    assert printed["reveal_answered,replies"] == pytest.approx(1 - (counts["failed"] + counts["empty"]) / n)
    assert re.search(r"reveal_failed.*\b0\.\d+", done.printed)


def test_tokens_are_those_of_the_replies(done: Done) -> None:
    (uncounted,) = [name for name, faults in zip(done.statuses, FAULTS, strict=False) if faults == ("no_usage",)]
    for exchange in done.run.exchanges:
        tokens_in, _, tokens_out = tokens_of(exchange.question)
        is_known = exchange.status != "failed" and exchange.question != uncounted
        assert (exchange.tokens_in, exchange.tokens_out) == ((tokens_in, tokens_out) if is_known else (None, None))


def test_neither_pictures_nor_keys_are_logged(done: Done) -> None:
    for path in (path for folder in (done.logged, done.run.folder) for path in folder.rglob("*") if path.is_file()):
        assert b"iVBOR" not in path.read_bytes(), "the first characters of a PNG in base64"
    (samples,) = done.logged.rglob("*_samples_*")
    assert KEY in samples.read_text(), "the model quotes the key in its errors, and lmms-eval logs them"
    for path in done.run.folder.iterdir():
        assert not re.search(rf"{KEY}|127\.0\.0\.1".encode(), path.read_bytes())


def test_repeats_are_epochs(done: Done, films: Path, truth: Truth, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    sent, names = Sent(done.export), [question for question, _, _ in truth.questions][:REPEATED]
    with playing(truth, faults={names[1]: ["answer", "refusal"]}) as (model, _):
        question_of = model.question_of
        model.question_of = lambda body: question_of(sent.as_exported(body))
        options = ["--limit", str(REPEATED), "--repeats", str(TIMES), "--gen_kwargs", "temperature=0.5,do_sample=True"]
        evaluate(done.export, tmp_path / "home", model.url, tmp_path / "replies", *options, backend="openai")
    assert {body["temperature"] for body in model.bodies} == {0.5}
    info, exchanges = lmms.import_samples([tmp_path / "replies"], done.export)
    assert (info.epochs, info.parameters["temperature"]) == (TIMES, 0.5)
    assert [(e.question, e.epoch) for e in exchanges] == [(name, i + 1) for name in names for i in range(TIMES)]
    assert Counter(e.status for e in exchanges) == {"answered": REPEATED * TIMES - 1, "refused": 1}
    assert write_outputs(tmp_path / "run", exchanges, info).by_status["not_asked"] == TIMES * (
        len(truth.questions) - REPEATED
    )


def test_local_models_get_the_same_conversation(done: Done, tmp_path: Path) -> None:
    """Return the input of a processor from lmms-eval's classes for local models; this needs no weights."""
    program = """
import importlib.util, json, sys
import pyarrow.parquet as pq
from lmms_eval.protocol import ChatMessages
assert importlib.util.find_spec("reveal_bench") is None
sys.path.insert(0, sys.argv[1])
import reveal_questions
doc = pq.read_table(sys.argv[1] + "/questions.parquet").to_pylist()[0]
messages = ChatMessages(messages=reveal_questions.doc_to_messages(doc))
pictures, _, _ = messages.extract_media()
print(json.dumps({
    "messages": [[m["role"], [c.get("text") for c in m["content"]]] for m in messages.to_hf_messages()],
    "pictures": [[p.mode, *p.size] for p in pictures],
}))
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    got = subprocess.run(
        [PYTHON, "-c", program, str(done.export)],
        env={**environment, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    conversation = json.loads(got.stdout.splitlines()[-1])
    first = done.model.bodies[[name for name, _ in done.model.asked].index(next(iter(done.statuses)))]
    assert conversation["messages"] == [
        [message["role"], [part.get("text") for part in message["content"]]] for message in first["messages"]
    ]
    assert len(conversation["pictures"]) == SETTINGS.shots + 1
    assert {mode for mode, *_ in conversation["pictures"]} == {"RGB"}
