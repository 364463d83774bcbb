"""The run folder: written whole, read back as it was, and in the form that a leaderboard takes."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from reveal_bench.kinds.tasks.records import AnswerBox
from reveal_bench.masks import Rle
from reveal_bench.models.answers import PARSER_VERSION
from reveal_bench.models.prices import Prices
from reveal_bench.models.questions import AskSettings, ShotUsed
from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, read_run, read_run_info, single_run, write_outputs
from tests.conftest import ROOT

SHOTS = (ShotUsed("c", "validation", 1), ShotUsed("d", "test", 4))
CELL = QuestionOutcome(
    "a|Edema", "a", "answered", "Edema", text="Cell: D5\n", cell="D5", stop_reason="stop", served_model="m-1",
    sent_temperature=0.7, tokens_in=1000, tokens_cached=200, tokens_out=30, shots=SHOTS,
)  # fmt: skip
FAILED = QuestionOutcome("b|Edema", "b", "failed", "Edema", error="HTTP 400")
INFO = RunInfo(
    "chexlocalize", "1.0.0", "test", "localization", 3, 3, "Model", 8, AskSettings(style="few-shot", shots=2, seed=4),
    {"temperature": 0.7, "seed": 9}, prices=Prices(Decimal("0.1"), Decimal("3"), Decimal("0.01")),
    harness={"inspect_ai": "0.3.285"},
)  # fmt: skip


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    others = [
        replace(FAILED, question="c|Edema", unit="c", status="answered", error=None, text="x", point=(3.5, 4.0)),
    ]
    summary = write_outputs(tmp_path, [CELL, FAILED, *others], INFO)
    run = read_run(tmp_path)
    assert (run.info, run.exchanges, run.summary) == (INFO, (CELL, FAILED, *others), summary)
    assert (tmp_path / "predictions.jsonl").read_text() == (
        '{"image_id": "a", "finding": "Edema", "cell": "D5"}\n'
        '{"image_id": "c", "finding": "Edema", "point": [3.5, 4]}\n'
    )
    # 800 at 0.1, 200 at 0.01 and 30 at 3 per million
    assert summary.cost == Decimal("0.000172")
    assert json.loads((tmp_path / "summary.json").read_text())["cost"] == "0.000172"
    assert (summary.without_usage, summary.by_finding) == (1, {"Edema": {"answered": 2, "failed": 1}})


def test_masks_boxes_labels_and_texts_come_back(tmp_path: Path) -> None:
    mask = replace(CELL, cell=None, mask=Rle((4, 5), "05"), score=0.25)
    box = replace(CELL, question="b|Edema", unit="b", cell=None, box=(1.0, 2.0, 3.0, 4.0), note="two boxes")
    write_outputs(tmp_path / "l", [mask, box], replace(INFO, settings=None, system="cnn"))
    assert read_run(tmp_path / "l").exchanges == (mask, box)
    studies = [
        QuestionOutcome("s", "s", "answered", labels=()),
        QuestionOutcome("t", "t", "answered", labels=("COPD",)),
    ]
    write_outputs(tmp_path / "f", studies, replace(INFO, kind="findings", settings=None))
    assert read_run(tmp_path / "f").exchanges == tuple(studies)
    assert (tmp_path / "f" / "predictions.jsonl").read_text().splitlines()[0] == '{"study_id": "s", "labels": []}'
    task = QuestionOutcome("k", "k", "answered", answer="Large.", boxes=(AnswerBox("i", "heart", (1, 2, 3, 4)),))
    write_outputs(tmp_path / "t", [task], replace(INFO, kind="tasks", settings=None))
    assert read_run(tmp_path / "t").exchanges == (task,)
    assert json.loads((tmp_path / "t" / "predictions.jsonl").read_text()) == {
        "task_id": "k", "answer": "Large.", "boxes": [{"image_id": "i", "label": "heart", "box": [1, 2, 3, 4]}],
    }  # fmt: skip


@pytest.mark.parametrize("settings", [INFO.settings, None], ids=["settings", "none"])
def test_every_submission_fits_the_schema(settings: AskSettings | None, tmp_path: Path) -> None:
    import jsonschema

    schema = json.loads((ROOT / "submissions" / "schema" / "submission.schema.json").read_text())
    write_outputs(tmp_path, [CELL], replace(INFO, settings=settings), organization="A laboratory")
    submission = json.loads((tmp_path / "submission.json").read_text())
    jsonschema.validate(submission, schema)
    assert submission["organization"] == "A laboratory"
    assert submission["prompt_style"] == (None if settings is None else "few-shot")
    # the model's seed, not the seed that chose the examples
    assert submission["parameters"]["seed"] == 9
    assert submission["parameters"]["shots_seed"] == (None if settings is None else 4)
    assert submission["parameters"]["exchanges_not_asked"] == 2


def test_epochs_have_a_file_each_and_no_other_stays(tmp_path: Path) -> None:
    write_outputs(tmp_path, [CELL], INFO)
    write_outputs(tmp_path, [replace(CELL, epoch=2), CELL, FAILED], replace(INFO, epochs=2))
    assert sorted(p.name for p in tmp_path.glob("pred*")) == ["predictions-1.jsonl", "predictions-2.jsonl"]
    assert [exchange.epoch for exchange in read_run(tmp_path).exchanges] == [1, 2, 1]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("exchanges", "message"),
    [
        ([CELL, CELL], "one per question and epoch, got 2 of 'a|Edema', 1"),
        ([replace(CELL, epoch=2)], r"`epoch` must be in \[1, 1\], got 2 of 'a|Edema'"),
        ([replace(CELL, question=str(i)) for i in range(4)], "must be at most 3, the number of questions, got 4"),
    ],
    ids=["twice", "epoch", "too-many"],
)
def test_what_cannot_be_is_refused(exchanges: list[QuestionOutcome], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_outputs(tmp_path, exchanges, INFO)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "`kind` must be one of"),
        ({"model": "x" * 101}, "`model` must be a name of 1 to 100"),
        ({"model": "two\nlines"}, "`model` must be a name"),
        ({"epochs": 0}, "`epochs` must be at least 1"),
        ({"grid": 16}, "`grid` must equal the settings' 8, got 16"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_information_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(INFO, **change)  # type: ignore[arg-type]


def test_the_version_of_the_parser_is_stated(tmp_path: Path) -> None:
    write_outputs(tmp_path, [CELL], INFO)
    assert json.loads((tmp_path / "summary.json").read_text())["parser_version"] == PARSER_VERSION
    parameters = json.loads((tmp_path / "submission.json").read_text())["parameters"]
    assert parameters["version_parser"] == PARSER_VERSION


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    assert read_run_info(tmp_path) is None
    with pytest.raises(ValueError, match=r"is not a run folder: it has no run\.json"):
        read_run(tmp_path)
    write_outputs(tmp_path, [CELL, FAILED], INFO)
    lines = (tmp_path / "transcript.jsonl").read_text().splitlines()
    for broken in ("", "[]", '{"question": 1}', lines[1][:-1], lines[1].replace('"status"', '"state"')):
        (tmp_path / "transcript.jsonl").write_text(f"{lines[0]}\n{broken}\n")
        with pytest.raises(ValueError, match=r"transcript\.jsonl:2: not a line of a transcript"):
            read_run(tmp_path)
    (tmp_path / "transcript.jsonl").unlink()
    with pytest.raises(ValueError, match=r"has no transcript\.jsonl, because its run was killed: repeat"):
        read_run(tmp_path)
    document = json.loads((tmp_path / "run.json").read_text())
    for content, message in (
        ({**document, "schema": 2}, "`schema` must be 1, got 2"),
        ({**document, "more": 1}, "the fields must be"),
        ({**document, "settings": {"form": "cell"}}, "`settings` must have the fields"),
        ({**document, "model": None}, "must contain one JSON object with a `model`"),
        ([], r"run\.json: must contain one JSON object with a `model`, got \[\]"),
    ):
        (tmp_path / "run.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            read_run_info(tmp_path)


def test_a_write_that_breaks_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_outputs(tmp_path, [CELL], INFO)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_outputs(tmp_path, [FAILED], INFO)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("model", "plain"),
    [
        ("gpt-5", "gpt-5"),
        ("llama3.2-vision:11b", "llama3.2-vision-11b"),
        ("@cf/meta/llama", "cf/meta/llama"),
        ("医学", "model"),
        ("m" * 100, "m" * 64),
    ],
    ids=["as it is", "colon", "first", "other script", "long"],
)
def test_the_leaderboard_takes_the_submission_of_any_model(model: str, plain: str, tmp_path: Path) -> None:
    metadata = pytest.importorskip("reveal_leaderboard.store.metadata")
    write_outputs(tmp_path, [CELL, FAILED], replace(INFO, model=model))
    read = metadata.read_metadata((tmp_path / "submission.json").read_text())
    assert (read.model.name, read.parameters["model"]) == (plain, model)


def test_who_is_alone_clears_what_a_kill_left(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in (".run.json.123", ".predictions-1.jsonl.9", "logs/.inspect_tmp_ab.writing"):
        (tmp_path / name).write_text("torn")
    for name in ("run.json", "logs/a.eval"):
        (tmp_path / name).write_text("whole")
    with single_run(tmp_path), pytest.raises(ValueError, match="is being written by another run"), single_run(tmp_path):
        pass
    held = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert held == {"run.json", "logs/a.eval"}


def test_a_lock_that_was_removed_in_between_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    lock = fcntl.flock

    def removed_first(file: object, how: int) -> None:
        (tmp_path / ".lock").unlink()
        (tmp_path / ".lock").touch()  # by a third run
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with pytest.raises(ValueError, match="is being written by another run"), single_run(tmp_path):
        pass
