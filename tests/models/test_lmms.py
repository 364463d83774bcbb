"""The contents of an export, its instructions for lmms-eval, and the import of samples; lmms-eval itself is not needed
here.

The samples have the shape that lmms-eval 0.7.3 was seen to write. ``test_lmms_real`` runs the program itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from reveal_bench.models import lmms
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.models.prompts import compose
from reveal_bench.models.questions import AskSettings, PromptImage, list_questions
from reveal_bench.models.run_folder import write_outputs
from reveal_bench.models.shots import ShotPool
from tests.syntax import imports_of

SETTINGS = AskSettings()
FEW = AskSettings(style="few-shot", shots=2, shots_split="validation")
N = 6
MODULE = lmms.TEMPLATES / lmms.MODULE


def load(path: Path) -> Any:
    """A module by its path, as lmms-eval loads it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(export: Path) -> list[dict[str, Any]]:
    from datasets import load_dataset

    cache = str(export.parent / f"cache-{export.name}")
    loaded = load_dataset("parquet", data_files={"test": str(export / "questions.parquet")}, cache_dir=cache)
    return list(loaded["test"])


@pytest.fixture(scope="module")
def export(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lmms") / "zero"
    assert lmms.export_tasks(films, "test", out, SETTINGS, limit=N) == out / "reveal_grid.yaml"
    return out


@pytest.fixture(scope="module")
def few(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lmms") / "few"
    lmms.export_tasks(films, "test", out, FEW, limit=2)
    return out


Log = Callable[..., Path]


@pytest.fixture
def log(export: Path, tmp_path: Path) -> Log:
    """Writes what lmms-eval logs: question number -> its replies."""
    docs = rows(export)
    module = load(export / lmms.MODULE)

    def write(
        replies: Mapping[int, Sequence[str | None]],
        *,
        name: str = "20261122_120000",
        model: str = "org/model-7b",
        backend: str = "openai",
        batch_size: str = "1",
        tokens: Mapping[str, int] | None = None,
        thought: str = "",
        **generation: Any,
    ) -> Path:
        folder = tmp_path / "replies" / "org__model"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}_samples_reveal_grid.jsonl"
        lines = []
        for number, texts in replies.items():
            sample: dict[str, Any] = {
                "doc_id": number,
                "target": module.doc_to_target(docs[number]),
                "filtered_resps": [str(text) for text in texts],  # lmms-eval makes texts of everything
                "token_counts": [{"input_tokens": 900, "output_tokens": 7, "reasoning_tokens": 0, **(tokens or {})}],
                "doc_hash": "74234e98",
                **module.process_results(docs[number], [text or "" for text in texts]),
                "input": module.doc_to_text(docs[number]),
            }
            if thought:
                sample["resps"] = [f"<think>{thought}</think>{text}" for text in texts]
            lines.append(json.dumps(sample) + "\n")
        path.write_text("".join(lines))
        sent = {"max_new_tokens": 2048, "temperature": 0.0, "do_sample": False, "until": [], **generation}
        results = {
            "config": {"model": backend, "batch_size": batch_size, "model_args": "base_url=http://127.0.0.1:1/v1"},
            "configs": {"reveal_grid": {"generation_kwargs": sent}},
            "model_name": model,
        }
        (folder / f"{name}_results.json").write_text(json.dumps(results))
        return path

    return write


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "nowhere"}, "nowhere"),
        ({"settings": replace(SETTINGS, form="labels")}, "`form` must be one of cell, point, box"),
        ({"limit": 0}, "`limit` must be at least 1, got 0"),
        ({"out": "."}, "`out` must be a new folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_exported_is_refused(films: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    arguments = {"split": "test", "out": "new", "settings": SETTINGS, "limit": 1, **options}
    with pytest.raises(ValueError, match=re.escape(message)):
        lmms.export_tasks(
            films, arguments["split"], tmp_path / arguments["out"], arguments["settings"], limit=arguments["limit"]
        )
    assert list(tmp_path.iterdir()) == []


def test_an_export_is_a_folder_of_its_own(films: Path, export: Path, tmp_path: Path) -> None:
    asked = json.loads((export / "run-settings.json").read_text())
    questions = list_questions(films, "test", SETTINGS)
    assert (asked["n_questions"], asked["n_asked"], asked["limit"]) == (len(questions), N, N)
    assert asked["settings"]["detail"] == "auto", "lmms-eval sends no detail"
    lmms.export_tasks(films, "test", tmp_path / "again", SETTINGS, limit=N)
    files = sorted(path.relative_to(export) for path in export.rglob("*"))
    assert files == sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*"))
    for path in files:
        if (export / path).is_file():
            assert (export / path).read_bytes() == (tmp_path / "again" / path).read_bytes(), path
    assert len(list((export / "pictures").iterdir())) == len({q.image.image_id for q in questions[:N]}) < N


def test_the_task_file_names_functions_that_are_there(export: Path) -> None:
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: f"!{node.value}")
    task = yaml.load((export / "reveal_grid.yaml").read_text(), Loader)
    functions = [value[1:].split(".") for value in task.values() if isinstance(value, str) and value.startswith("!")]
    module = load(export / "reveal_questions.py")
    assert len(functions) == 5
    assert all(name == "reveal_questions" and callable(getattr(module, function)) for name, function in functions)
    assert task["task"] == "reveal_grid"
    assert task["dataset_kwargs"]["data_files"] == {"test": "questions.parquet"}, "lmms-eval finds it beside the file"
    assert task["generation_kwargs"]["until"] == [], "the default cuts replies at an empty line"
    assert not re.search(r"\$[a-z_{]", "".join(path.read_text() for path in export.glob("*.[ym][ad]*")))


def test_the_module_needs_nothing_of_this_package() -> None:
    names = {module.split(".")[0] for _, module in imports_of(MODULE)}
    assert names - set(sys.stdlib_module_names) == {"PIL"}


@pytest.mark.parametrize("style", ["zero-shot", "few-shot"])
def test_lmms_eval_gets_our_messages(style: str, films: Path, request: pytest.FixtureRequest) -> None:
    settings, name = (SETTINGS, "export") if style == "zero-shot" else (FEW, "few")
    folder = request.getfixturevalue(name)
    module, pictures, pool = load(folder / "reveal_questions.py"), FolderPictures(films), ShotPool(films, settings)
    docs = rows(folder)
    questions = list_questions(films, "test", settings, limit=len(docs))
    assert [doc["id"] for doc in docs] == [question.id for question in questions]
    for doc, question in zip(docs, questions, strict=True):
        ours = compose(question, settings, pictures=pictures, shots=pool.pick(question))
        theirs = module.doc_to_messages(doc)
        assert [message["role"] for message in theirs] == [message.role for message in ours]
        for got, expected in zip(theirs, ours, strict=True):
            for content, part in zip(got["content"], expected.parts, strict=True):
                if isinstance(part, PromptImage):
                    assert content["type"] == "image"
                    assert content["url"].mode == "RGB"
                    assert content["url"].tobytes() == Image.open(io.BytesIO(part.png)).tobytes()
                else:
                    assert content == {"type": "text", "text": part}
        assert module.doc_to_text(doc) == "\n".join(part for part in ours[-1].parts if isinstance(part, str))
    n_pictures = sum(content["type"] == "image" for message in theirs for content in message["content"])
    assert n_pictures == settings.shots + 1


def test_a_changed_picture_is_noticed(few: Path, tmp_path: Path) -> None:
    module, doc = load(few / "reveal_questions.py"), rows(few)[0]
    module.PICTURES = tmp_path
    for path in (few / "pictures").iterdir():
        Image.open(path).convert("L").convert("RGB").save(tmp_path / path.name)
    with pytest.raises(ValueError, match="is not the picture that was exported"):
        module.doc_to_messages(doc)


def test_models_that_take_no_conversation_are_refused(export: Path) -> None:
    with pytest.raises(ValueError, match="they need a chat model of lmms-eval"):
        load(export / "reveal_questions.py").doc_to_visual({})


@pytest.mark.parametrize(
    ("replies", "answered", "failed"),
    [
        (["D5"], 1.0, 0.0),
        ([""], 0.0, 0.0),
        ([" \n"], 0.0, 0.0),
        (['Error: can only concatenate str (not "NoneType") to str'], 0.0, 0.0),
        (["[LMMS_EVAL_REQUEST_FAILED after 5 retries] Error code: 500 - x"], 0.0, 1.0),
        (["[LMMS_EVAL_BUDGET_EXCEEDED]"], 0.0, 1.0),
        (["D5", "", "[LMMS_EVAL_BUDGET_EXCEEDED]", "no idea"], 0.5, 0.25),
    ],
)
def test_lmms_eval_counts_replies_not_hits(replies: list[str], answered: float, failed: float) -> None:
    counted = load(MODULE).process_results({}, replies)
    assert (counted["reveal_answered"], counted["reveal_failed"]) == (answered, failed)
    assert set(counted) == {"reveal_answered", "reveal_failed", "reveal"}


def test_samples_come_back_in_the_order_of_the_manifest(log: Log, export: Path, films: Path, tmp_path: Path) -> None:
    path = log(
        {
            5: ["Cell: B7"],
            0: ["[LMMS_EVAL_REQUEST_FAILED after 3 retries] Error code: 503 - {'host': 'secret.example.org'}"],
            4: [None],
            1: ["None"],
            2: ["I would say\n\nCell: H8"],
        }
    )
    info, exchanges = lmms.import_samples([path], export)
    ids = [question.id for question in list_questions(films, "test", SETTINGS)]
    assert [exchange.question for exchange in exchanges] == [ids[i] for i in (0, 1, 2, 4, 5)]
    assert [exchange.status for exchange in exchanges] == ["failed", "unclear", "answered", "empty", "answered"]
    assert [exchange.cell for exchange in exchanges] == [None, None, "H8", None, "B7"]
    assert (exchanges[0].error, exchanges[0].text) == ("HTTP 503 after 3 attempts", None)
    assert (exchanges[2].unit, exchanges[2].finding) == tuple(ids[2].split("|"))
    assert (exchanges[2].tokens_in, exchanges[2].tokens_out, exchanges[2].sent_temperature) == (900, 7, 0.0)
    assert (info.model, info.n_questions, info.n_asked, info.limit) == ("org/model-7b", len(ids), N, N)
    assert info.parameters == {"backend": "openai", "temperature": 0.0, "max_tokens": 2048, "do_sample": False}
    assert info.settings == replace(SETTINGS, detail="auto")
    summary = write_outputs(tmp_path / "run", exchanges, info)
    assert summary.by_status == {"answered": 2, "empty": 1, "failed": 1, "not_asked": 1, "unclear": 1}
    predictions = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert [(line["image_id"], line["finding"], line["cell"]) for line in predictions] == [
        (*ids[2].split("|"), "H8"),
        (*ids[5].split("|"), "B7"),
    ]
    written = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir())
    assert not re.search(rb"127\.0\.0\.1|secret\.example|" + str(tmp_path).encode(), written)


def test_repeats_are_epochs(log: Log, export: Path) -> None:
    info, exchanges = lmms.import_samples([log({0: ["A1", "[LMMS_EVAL_X]", "C3"], 1: ["D4", "", "F6"]})], export)
    assert info.epochs == 3
    assert [(e.epoch, e.status, e.cell) for e in exchanges] == [
        *[(1, "answered", "A1"), (2, "failed", None), (3, "answered", "C3")],
        *[(1, "answered", "D4"), (2, "empty", None), (3, "answered", "F6")],
    ]
    assert [e.tokens_out for e in exchanges] == [7, None, None, 7, None, None], "lmms-eval counts the first one's"


def test_thoughts_stay_in_the_transcript(log: Log, export: Path) -> None:
    _, [exchange] = lmms.import_samples([log({0: ["Cell: B2"]}, thought="A1? No.")], export)
    assert (exchange.cell, exchange.text) == ("B2", "<think>A1? No.</think>Cell: B2")


@pytest.mark.parametrize(
    ("options", "stop_reason", "tokens"),
    [
        ({}, None, (900, 7)),
        ({"tokens": {"output_tokens": 2048}}, "max_tokens", (900, 2048)),
        ({"tokens": {"output_tokens": 64}, "max_new_tokens": 64}, "max_tokens", (900, 64)),
        ({"tokens": {"output_tokens": 2048}, "backend": "huggingface"}, "max_tokens", (900, 2048)),
        ({"tokens": {"output_tokens": 2048}, "backend": "huggingface", "batch_size": "8"}, None, (None, None)),
        ({"tokens": {"input_tokens": 0, "output_tokens": 2048}}, None, (None, None)),
    ],
    ids=["short", "full", "own limit", "local", "padded batch", "words, not tokens"],
)
def test_a_reply_of_as_many_tokens_as_there_may_be_was_cut_off(
    options: dict[str, Any], stop_reason: str | None, tokens: tuple[int | None, int | None], log: Log, export: Path
) -> None:
    _, [exchange] = lmms.import_samples([log({0: ["First I look at the"]}, **options)], export)
    assert exchange.stop_reason == stop_reason
    assert (exchange.tokens_in, exchange.tokens_out) == tokens
    assert exchange.status == ("cut_off" if stop_reason else "unclear")


@pytest.mark.parametrize(
    ("model", "backend", "name", "temperature"),
    [
        ("org/model-7b", "vllm", "org/model-7b", 0.0),
        ("/data/models/own-7b/", "huggingface", "own-7b", 0.0),
        ("../models/own-7b", "huggingface", "own-7b", 0.0),
        ("", "qwen2_5_vl", "qwen2_5_vl", 0.0),
        ("gpt-5-mini", "openai", "gpt-5-mini", None),
        ("gpt-5-mini", "async_openai", "gpt-5-mini", 0.0),
    ],
)
def test_the_model_is_named_without_folders(
    model: str, backend: str, name: str, temperature: float | None, log: Log, export: Path
) -> None:
    info, [exchange] = lmms.import_samples([log({0: ["A1"]}, model=model, backend=backend)], export)
    assert info.model == name
    assert (info.parameters.get("temperature"), exchange.sent_temperature) == (temperature, temperature)
    assert lmms.import_samples([log({0: ["A1"]}, model=model)], export, model="ours")[0].model == "ours"


def test_of_several_logs_the_latest_reply_counts(log: Log, export: Path) -> None:
    log({0: ["A1"], 1: ["[LMMS_EVAL_X]"], 2: ["C3"]}, name="20261122_100000")
    last = log({1: ["B2"], 2: ["[LMMS_EVAL_X]"], 0: ["D4"]}, name="20261122_110000")
    _, exchanges = lmms.import_samples([last.parent.parent], export)
    assert [exchange.cell for exchange in exchanges] == ["D4", "B2", "C3"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("{", ":1 is not a sample of lmms-eval"),
        ("[]", ":1 is not a sample of lmms-eval"),
        ('{"target": "x"}', ":1 is not a sample of lmms-eval: it lacks 'filtered_resps'"),
        (("sent", "0" * 64), "is not from this export"),
        (("id", "nobody|Edema"), "is not from this export"),
        ({"filtered_resps": []}, "must have a text for each of its 1 replies"),
        ({"filtered_resps": ["A1", "B2"]}, "must have a text for each of its 1 replies"),
        ({"filtered_resps": [3]}, "must have a text for each of its 1 replies"),
    ],
    ids=["cut", "list", "bare", "other words", "other question", "no reply", "two replies", "number"],
)
def test_a_line_that_is_none_is_refused(broken: Any, message: str, log: Log, export: Path) -> None:
    path = log({0: ["A1"]})
    sample = json.loads(path.read_text())
    sent, _, question_id = sample["target"].partition(" ")
    if isinstance(broken, tuple):
        named = {"sent": sent, "id": question_id, broken[0]: broken[1]}
        broken = {"target": f"{named['sent']} {named['id']}"}
    path.write_text(broken if isinstance(broken, str) else json.dumps({**sample, **broken}))
    with pytest.raises(ValueError, match=re.escape(message)):
        lmms.import_samples([path], export)


def test_what_is_no_log_or_export_is_refused(log: Log, export: Path, few: Path, tmp_path: Path) -> None:
    path = log({0: ["A1"]})
    for paths, folder, message in [
        ([tmp_path / "nowhere"], export, "`paths` must exist"),
        ([], export, r"`paths` must contain files \*_samples_reveal_grid.jsonl .*, got nothing"),
        ([export], export, r"`paths` must contain files"),
        ([path], tmp_path, "`export` must be a folder that export_tasks wrote"),
        ([path], few, ":1 is not from this export"),
        ([path, log({1: ["A1"]}, name="20261122_130000", model="other")], export, "must come from one model"),
        ([path, log({1: ["A1"]}, name="20261122_130000", temperature=1.0)], export, "must come from one model"),
    ]:
        with pytest.raises(ValueError, match=message):
            lmms.import_samples(paths, folder)
    path.with_name("20261122_120000_results.json").write_text("{}")
    with pytest.raises(ValueError, match="is not an lmms-eval results file for reveal_grid"):
        lmms.import_samples([path], export)
    path.with_name("20261122_120000_results.json").unlink()
    with pytest.raises(ValueError, match="`model` must be given"):
        lmms.import_samples([path], export)
    info, _ = lmms.import_samples([path], export, model="ours")
    assert (info.model, info.parameters) == ("ours", {})


def test_the_digest_of_what_is_sent_holds_the_pictures(films: Path, export: Path, tmp_path: Path) -> None:
    lmms.export_tasks(films, "test", tmp_path / "small", replace(SETTINGS, side=128), limit=1)
    one, other = rows(export)[0], rows(tmp_path / "small")[0]
    assert one["sent"] == hashlib.sha256(one["messages"].encode()).hexdigest()
    assert (one["id"], one["sent"] == other["sent"]) == (other["id"], False)
