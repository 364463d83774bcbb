"""Tasks run by `inspect eval` with its defaults; contents of their logs, and contents that must not be there."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.evaluation.score import lint_file
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.models.inspect_logs import NOT_SENT, import_logs
from reveal_bench.models.questions import AskSettings, list_questions
from reveal_bench.models.run_folder import read_run, write_outputs
from reveal_bench.models.running import ModelChoice, run_model
from reveal_bench.phantom import write_reveal, write_rexecution
from reveal_bench.sources import reveal_cxr, rexecution
from tests.conftest import ROOT
from tests.models.conftest import Truth, playing
from tests.models.endpoint import PlayedModel


@dataclass(frozen=True)
class Plain:
    """Logs of ``inspect eval reveal_bench/grid_localization -T style=few-shot --limit 5 --epochs 2``."""

    logs: Path
    model: PlayedModel


@pytest.fixture(scope="module")
def plain(films: Path, truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plain]:
    import inspect_ai
    from inspect_ai.model import get_model

    from reveal_bench.models.inspect_tasks import grid_localization

    root = tmp_path_factory.mktemp("plain")
    faults = {truth.questions[1][0]: ["400"] * 9}
    with pytest.MonkeyPatch.context() as patch, playing(truth, faults=faults) as (model, _):
        for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(root / "home"))
        task = grid_localization(str(films), "test", style="few-shot", shots=2, seed=3)
        asked = get_model("openai-api/x/played", base_url=model.url, api_key="none", memoize=False)
        options: dict[str, Any] = {"limit": 5, "epochs": 2, "temperature": 0.5, "max_connections": 4}
        inspect_ai.eval(task, asked, log_dir=str(root / "logs"), display="none", ctl_server=False, **options)
        yield Plain(root / "logs", model)


def test_the_entry_point_leads_here() -> None:
    from reveal_bench.models.inspect_tasks import grid_localization

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["inspect_ai"] == {"reveal_bench": grid_localization.__module__}


def test_logs_of_inspect_itself_are_read(plain: Plain, truth: Truth, tmp_path: Path) -> None:
    info, exchanges = import_logs([plain.logs])
    assert (info.benchmark, info.split, info.kind, info.model) == (
        "chexlocalize",
        "test",
        "localization",
        "openai-api/x/played",
    )
    assert (info.n_questions, info.n_asked, info.limit, info.epochs) == (len(truth.questions), 5, 5, 2)
    assert info.parameters == {"temperature": 0.5}
    assert info.settings == AskSettings(style="few-shot", shots=2, shots_split="validation", seed=3)
    names = [question for question, _, _ in truth.questions[:5]]
    assert [(e.question, e.epoch) for e in exchanges] == [(name, epoch) for name in names for epoch in (1, 2)]
    for exchange in exchanges:
        if exchange.question == names[1]:
            assert (exchange.status, exchange.text) == ("failed", None)
            assert exchange.error == "Error code: 400 - no (400) for key Bearer ***"
        else:
            assert (exchange.status, exchange.cell) == ("answered", truth.right[exchange.question])
            assert exchange.sent_temperature == 0.5
            assert len(exchange.shots) == 2
    summary = write_outputs(tmp_path, exchanges, info)
    assert summary.by_status == {"answered": 8, "failed": 2}
    assert read_run(tmp_path).exchanges == tuple(exchanges)


def test_examples_come_before_the_question_and_are_other_films(plain: Plain) -> None:
    for body, (question, _) in zip(plain.model.bodies, plain.model.asked, strict=True):
        roles = [message["role"] for message in body["messages"] if message["role"] != "system"]
        assert roles == ["user", "assistant"] * 2 + ["user"]
        parts = [part for message in body["messages"] if message["role"] == "user" for part in message["content"]]
        assert len({part["image_url"]["url"] for part in parts if "image_url" in part}) == 3
        assert question.split("|")[1].lower() in json.dumps(body["messages"][-1]).lower()


def test_a_log_holds_no_picture_reference_or_path_in_its_samples(plain: Plain, truth: Truth) -> None:
    (log,) = plain.logs.iterdir()
    with zipfile.ZipFile(log) as file:
        samples = [json.loads(file.read(name)) for name in file.namelist() if name.startswith("samples/")]
        assert "iVBORw0KGgo" not in "".join(file.read(name).decode() for name in file.namelist())
        assert all(name.isascii() and "|" not in name for name in file.namelist())
    assert len(samples) == 10
    for sample in samples:
        assert set(sample["metadata"]) <= {"question", "shots", "first_epoch", "sent"}
        assert set(sample["metadata"]["question"]) == {
            "id", "form", "images", "finding", "present", "choices", "prompt", "indication", "requires_boxes",
        }  # fmt: skip
        assert sample["target"] == ""
        assert all(set(shot) == {"image_id", "split", "tier"} for shot in sample["metadata"]["shots"])


def test_what_was_sent_is_marked_where_it_is_not_known(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai.log import EvalSample

    known = EvalSample.model_validate

    def without(*args: Any, **kwargs: Any) -> EvalSample:
        sample = known(*args, **kwargs)
        sample.metadata.pop("sent", None)
        return sample

    monkeypatch.setattr(EvalSample, "model_validate", without)
    answered = [e for e in import_logs([plain.logs])[1] if e.status == "answered"]
    assert {(e.sent_temperature, e.note) for e in answered} == {(0.5, NOT_SENT)}


@pytest.mark.parametrize("benchmark", ["reveal-cxr", "rexecution"])
def test_studies_and_open_tasks_are_asked_whole(benchmark: str, tmp_path: Path) -> None:
    from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage, get_model

    if benchmark == "reveal-cxr":
        write_reveal(tmp_path / "d", n_studies=4, long_side=96, traps=False)
        download, text = reveal_cxr.read(tmp_path / "d", id_key=b"k" * 32), "Findings: Cardiomegaly"
    else:
        write_rexecution(tmp_path / "d", n_tasks=4, long_side=96, traps=False)
        download, text = rexecution.read(tmp_path / "d"), "The heart is large."
    build_folder(download.splits, tmp_path / "p", BENCHMARKS[benchmark], extras=download.extras, synthetic=True)
    split = next(iter(download.splits))
    seen: list[int] = []

    def reply(input: list[ChatMessage], *_: Any) -> ModelOutput:
        contents = [message.content for message in input if not isinstance(message.content, str)]
        seen.append(sum(part.type == "image" for content in contents for part in content))
        output = ModelOutput.from_content("mock", text)
        output.usage = ModelUsage(input_tokens=10, output_tokens=2, total_tokens=12)
        return output

    settings = AskSettings.of_folder(tmp_path / "p")
    choice = ModelChoice("mock", instance=get_model("mockllm/model", custom_outputs=reply, memoize=False))
    summary = run_model(tmp_path / "p", split, tmp_path / "out", settings, choice)
    assert (summary.by_status, summary.tokens_in) == ({"answered": 4}, 40)
    report = lint_file(tmp_path / "out" / "predictions.jsonl", tmp_path / "p", split)
    assert report.ok, report.render()
    questions = list_questions(tmp_path / "p", split, settings)
    assert sorted(seen) == sorted(len(question.images) for question in questions)
    (log,) = (tmp_path / "out" / "logs").iterdir()
    with zipfile.ZipFile(log) as file:  # of a provider that tells inspect the whole request
        assert "iVBORw0KGgo" not in "".join(file.read(name).decode() for name in file.namelist())


def test_a_question_comes_back_from_its_metadata() -> None:
    images = (ViewedImage("a", "PA", (3, 4)), ViewedImage("b", "LATERAL", (5, 6), is_prior=True))
    question = Question("t", "text", images, choices=("x", "y"), prompt="?", requires_boxes=True)
    assert Question.from_document(json.loads(json.dumps(asdict(question)))) == question


def test_names_in_the_log_are_safe_and_differ() -> None:
    from reveal_bench.models.inspect_tasks import _safe

    names = [_safe(text) for text in ("a|b", "a/b", "../../etc", "ü" * 300, "a-b")]
    assert len(set(names)) == len(names)
    assert all(name.isascii() and not set(name) & set("/\\|:*?") and len(name) < 120 for name in names)


def test_a_folder_without_a_picture_that_is_asked_is_refused(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reveal_bench.models.inspect_tasks import Asking

    ids = {view.image_id for question in list_questions(films, "test", AskSettings()) for view in question.images}
    one = sorted(ids)[0]
    monkeypatch.setattr("reveal_bench.models.inspect_tasks.FolderPictures.ids", tuple(sorted(ids - {one})))
    with pytest.raises(ValueError, match=f"must have the images of all questions, .* lack: {one}"):
        Asking.of_folder(films, "test", AskSettings())


def test_every_task_that_the_documents_name_is_found_by_inspect() -> None:
    from inspect_ai._util.registry import registry_lookup

    texts = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("asking.md", "publishing.md")]
    named = {name for text in texts for name in re.findall(r"inspect eval (reveal_bench/\w+)", text)}
    assert "reveal_bench/grid_localization" in named
    assert [name for name in sorted(named) if registry_lookup("task", name) is None] == []
