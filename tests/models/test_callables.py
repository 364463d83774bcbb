"""Callables as models: their arguments, answers, errors, and resumption after a stop."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import reveal_bench
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.findings.lint import lint_findings
from reveal_bench.kinds.findings.records import FindingsPrediction, read_study_manifest
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.kinds.localization.records import read_localization, read_manifest
from reveal_bench.kinds.localization.scoring import score_localization
from reveal_bench.masks import decode_mask
from reveal_bench.models.callables import WORK_FILE, run_callable
from reveal_bench.models.run_folder import read_run
from reveal_bench.predictions.limits import LintOptions
from tests.conftest import ROOT, World
from tests.dataset.card_folders import FINDINGS, LABELS, TASKS, study, task

Answer = dict[str, Any] | None


class Flat:
    """Pictures of a split as films of one grey; counts how often each is opened."""

    def __init__(self, folder: Path, split: str) -> None:
        self.sizes = {row.image_id: row.size for row in read_manifest(folder, split).rows.values()}
        self.opened: list[str] = []

    def open(self, image_id: str) -> Image.Image:
        self.opened.append(image_id)
        height, width = self.sizes[image_id]
        return Image.new("L", (width, height), 100)


def run(world: World, predict: Callable[..., Any], split: str = "released", **options: Any) -> Any:
    return run_callable(predict, world.folder, split, pictures=Flat(world.folder, split), **options)


# What the callable gets, and what comes out


def test_what_knows_the_truth_hits_everything(world: World) -> None:
    """A callable that reads the private masks scores 1.0 on the private half, by point, cell and mask."""
    truth = {(r.image_id, a.finding): a for r in read_localization(world.vault, "holdout") for a in r.annotations}

    def predict(image: Image.Image, finding: str) -> Answer:
        return {"mask": decode_mask(truth[image.info["image_id"], finding].rle)}  # type: ignore[arg-type]

    result = run(world, predict, "holdout")
    manifest = read_manifest(world.folder, "holdout")
    assert [(p.image_id, p.finding) for p in result.predictions] == manifest.asked_pairs()
    records = read_localization(world.vault, "holdout")
    rows = score_localization(result.predictions, records, findings=manifest.findings)
    assert rows.values["point_hit"].mean() == rows.values["mask_iou"].mean() == 1.0
    path = world.root / "truth.jsonl"
    path.write_text(result.to_jsonl())
    report = lint_predictions(path, manifest)
    assert (report.ok, report.n_warnings, report.missing_pairs) == (True, 0, ())


@pytest.mark.parametrize("batch_size", [1, 7, 10_000])
def test_batches_give_the_same(world: World, batch_size: int) -> None:
    """The answer depends on the picture's id and the finding, so that an exchanged one shows."""
    sizes: list[int] = []

    def predict(image: Image.Image, finding: str) -> Answer:
        number = sum(map(ord, image.info["image_id"] + finding))
        return {"point": (number % image.width, number % image.height)} if number % 5 else None

    def predict_batch(images: list[Image.Image], findings: list[str]) -> list[Answer]:
        sizes.append(len(images))
        return [predict(image, finding) for image, finding in zip(images, findings, strict=True)]

    one_by_one, batched = run(world, predict), run(world, predict_batch, batch_size=batch_size)
    assert batched.predictions == one_by_one.predictions
    assert batched.no_answer == one_by_one.no_answer != ()
    n = len(read_manifest(world.folder, "released").asked_pairs())
    assert sum(sizes) == n
    assert max(sizes) == min(batch_size, n)


def test_pictures_are_read_once_and_may_be_drawn_on(world: World) -> None:
    pictures = Flat(world.folder, "released")
    seen = []

    def predict(image: Image.Image, finding: str) -> Answer:
        seen.append((image.mode, (image.height, image.width), image.info, image.getextrema()))
        image.paste(0, (0, 0, 9, 9))
        image.info.clear()
        return {"cell": "A1"}

    done: list[tuple[int, int]] = []
    run_callable(predict, world.folder, "released", pictures=pictures, progress=lambda *state: done.append(state))
    rows = read_manifest(world.folder, "released").rows
    assert pictures.opened == [row.image_id for row in rows.values() if row.asked]
    assert all(extrema == (100, 100) for *_, extrema in seen)
    assert {mode for mode, *_ in seen} == {"L"}
    assert done == [(i, len(seen)) for i in range(1, len(seen) + 1)]


def test_a_picture_of_another_size_is_refused(world: World) -> None:
    class Small(Flat):
        def open(self, image_id: str) -> Image.Image:
            return Image.new("L", (5, 6))

    with pytest.raises(ValueError, match=r"the picture of '.*' must be \(\d+, \d+\) \(height, width\), got \(6, 5\)"):
        run_callable(lambda image, finding: None, world.folder, "released", pictures=Small(world.folder, "released"))


def test_pictures_come_from_the_folder(films: Path) -> None:
    """By its public name, with nothing but a folder; the brightest pixel is inside a picture that is not flat."""

    def predict(image: Image.Image, finding: str) -> Answer:
        values = np.asarray(image)
        assert values.std() > 5
        return {"heat_map": values}

    result = reveal_bench.run_callable(predict, films, "test", limit=5)
    rows = read_manifest(films, "test").rows
    for prediction in result.predictions:
        (x, y), (height, width) = prediction.points[0], rows[prediction.image_id].size
        assert (x % 1, y % 1) == (0.5, 0.5)
        assert 0 < x < width
        assert 0 < y < height
    assert (len(result.predictions), result.info.n_asked, result.info.limit) == (5, 5, 5)


# Errors


def failing(on: set[int]) -> tuple[Callable[..., Answer], Iterator[int]]:
    counter = iter(range(10**6))

    def predict(image: Image.Image, finding: str) -> Answer:
        if next(counter) in on:
            raise KeyError("/home/someone/weights.pt")
        return {"cell": "A1"}

    return predict, counter


def test_an_error_names_the_question(world: World) -> None:
    pair = "|".join(read_manifest(world.folder, "released").asked_pairs()[3])
    message = f"`predict` failed on '{re.escape(pair)}': KeyError: '/home/someone/weights.pt'"
    with pytest.raises(RuntimeError, match=message) as caught:
        run(world, failing({3})[0])
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_may_count_as_a_miss(world: World, tmp_path: Path) -> None:
    pairs = read_manifest(world.folder, "released").asked_pairs()
    result = run(world, failing({0, 3})[0], on_error="miss", out=tmp_path / "run")
    assert [failure.question for failure in result.failures] == ["|".join(pairs[i]) for i in (0, 3)]
    assert {failure.message for failure in result.failures} == {"KeyError: '/home/someone/weights.pt'"}
    assert len(result.predictions) == len(pairs) - 2
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["by_status"] == {"answered": len(pairs) - 2, "failed": 2}
    for path in (tmp_path / "run").iterdir():
        assert "/home/someone" not in path.read_text(), path.name
    wrong = run(world, lambda image, finding: {"cell": "Z9"}, on_error="miss", limit=3)
    assert [failure.message[:24] for failure in wrong.failures] == ["`cell` must be a cell of"] * 3


def test_of_a_batch_that_fails_only_the_guilty_is_a_miss(world: World) -> None:
    pairs = ["|".join(pair) for pair in read_manifest(world.folder, "released").asked_pairs()]

    def predict(images: list[Image.Image], findings: list[str]) -> list[Answer]:
        ids = [f"{image.info['image_id']}|{finding}" for image, finding in zip(images, findings, strict=True)]
        if pairs[5] in ids:
            raise MemoryError("too much")
        return [{"cell": "A1"}] * len(ids)

    result = run(world, predict, batch_size=4, on_error="miss")
    assert [failure.question for failure in result.failures] == [pairs[5]]
    with pytest.raises(RuntimeError, match=f"failed on '{re.escape(pairs[4])}' and 3 more: MemoryError: too much"):
        run(world, predict, batch_size=4)


@pytest.mark.parametrize(("answers", "got"), [([None], "1"), (None, "NoneType"), ({"cell": "A1"}, "dict")])
def test_a_batch_is_answered_one_for_one(world: World, answers: Any, got: str) -> None:
    message = f"`predict` must answer a batch with a list of 3 answers, got {got}"
    with pytest.raises(ValueError, match=message):
        run(world, lambda images, findings: answers, batch_size=3, on_error="miss")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"batch_size": 0}, "`batch_size` must be a whole number of at least 1, or None, got 0"),
     ({"batch_size": True}, "`batch_size` must be a whole number"),
     ({"threshold": 1.0}, r"`threshold` must be a number in \(0, 1\), 'otsu' or None, got 1.0"),
     ({"threshold": "otso"}, "`threshold` must be a number .*, got 'otso'"),
     ({"on_error": "skip"}, "`on_error` must be 'raise' or 'miss', got 'skip'"),
     ({"limit": 0}, "`limit` must be at least 1, got 0"),
     ({"grid": 99}, "`grid` must be a whole number")],
    ids=["batch-0", "batch-bool", "threshold-1", "threshold-name", "on-error", "limit", "grid"],
)  # fmt: skip
def test_wrong_options_are_refused(world: World, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(world, lambda image, finding: None, **options)


# The run folder


def by_name(image: Image.Image, finding: str) -> Answer:
    number = sum(map(ord, image.info["image_id"] + finding))
    return {"point": (number % image.width, 0.25), "mask": np.ones((image.height, image.width), bool), "score": 0.5}


def test_the_run_folder_can_be_read_and_linted(world: World, tmp_path: Path) -> None:
    result = run(world, by_name, out=tmp_path, name="my net", system="cnn", parameters={"epochs_trained": 3})
    back = read_run(tmp_path)
    assert (back.info, back.exchanges) == (result.info, result.exchanges)
    assert (back.info.model, back.info.system, back.info.parameters["epochs_trained"]) == ("my net", "cnn", 3)
    manifest = read_manifest(world.folder, "released")
    assert lint_predictions(tmp_path / "predictions.jsonl", manifest).ok
    assert (tmp_path / "predictions.jsonl").read_text() == result.to_jsonl()
    assert len(result.predictions) == len(manifest.asked_pairs())


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_run_that_stops_goes_on(world: World, tmp_path: Path, batch_size: int | None) -> None:
    """Ctrl-C after 10 calls, a cut last line, then resumption: every question is asked once, except those under way."""
    asked: list[str] = []

    def predict(image: Any, finding: Any) -> Any:
        if len(asked) >= 10 and interrupt:
            raise KeyboardInterrupt
        pairs = list(zip(image, finding, strict=True)) if batch_size else [(image, finding)]
        asked.extend(f"{film.info['image_id']}|{name}" for film, name in pairs)
        answers = [by_name(film, name) for film, name in pairs]
        return answers if batch_size else answers[0]

    interrupt = True
    with pytest.raises(KeyboardInterrupt):
        run(world, predict, batch_size=batch_size, out=tmp_path / "run")
    with (tmp_path / "run" / WORK_FILE).open("ab") as file:
        file.write(b'{"question": "torn')
    interrupt = False
    again = run(world, predict, batch_size=batch_size, out=tmp_path / "run")
    pairs = ["|".join(pair) for pair in read_manifest(world.folder, "released").asked_pairs()]
    assert asked == pairs
    whole = run(world, by_name, out=tmp_path / "whole", name="predict")
    assert again.exchanges == whole.exchanges
    names = [path.name for path in (tmp_path / "whole").iterdir()]
    for name in names:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert run(world, predict, batch_size=batch_size, out=tmp_path / "run").predictions == again.predictions
    assert asked == pairs, "a finished run asks nothing"


def test_a_limit_can_be_raised(world: World, tmp_path: Path) -> None:
    run(world, by_name, out=tmp_path, limit=3)
    assert read_run(tmp_path).info.n_asked == 3
    run(world, by_name, out=tmp_path)
    assert read_run(tmp_path).info.limit is None
    n_all = len(read_manifest(world.folder, "released").asked_pairs())
    assert len(read_run(tmp_path).exchanges) == n_all
    with pytest.raises(ValueError, match=f"{n_all - 3} answers in it would be lost"):
        run(world, by_name, out=tmp_path, limit=3)
    assert len(read_run(tmp_path).exchanges) == n_all


def test_a_later_version_goes_on(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(world, by_name, out=tmp_path, limit=3)
    document = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**document, "reveal_bench": "0.0.1"}))
    asked = []
    run(world, lambda image, finding: asked.append(finding), out=tmp_path, name="by_name", limit=4)
    assert len(asked) == 1


def test_another_run_is_not_continued(world: World, tmp_path: Path) -> None:
    run(world, by_name, out=tmp_path, limit=3)
    with pytest.raises(
        ValueError, match=r"contains another run: run\.json says model 'by_name', but 'other' is requested"
    ):
        run(world, by_name, out=tmp_path, name="other")
    with (tmp_path / WORK_FILE).open("ab") as file:
        file.write(b"not json\n")
    with pytest.raises(ValueError, match=f"{WORK_FILE}:4: not a line of answers"):
        run(world, by_name, out=tmp_path)
    (tmp_path / WORK_FILE).unlink()
    with pytest.raises(ValueError, match=f"contains a run without {WORK_FILE}: use an empty folder"):
        run(world, by_name, out=tmp_path)
    (tmp_path / WORK_FILE).write_bytes(b"{}\n")
    (tmp_path / "run.json").unlink()
    with pytest.raises(ValueError, match=r"contains the answers of a run but no run.json"):
        run(world, by_name, out=tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
import reveal_bench
calls = Path(sys.argv[2], "calls")
def predict(image, finding):
    if sys.argv[3] == "die" and calls.exists() and calls.read_text().count(".") == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    calls.open("a").write(".")
    return {"cell": "A1"}
run = reveal_bench.run_callable(predict, sys.argv[1], "test", limit=12, out=Path(sys.argv[2], "run"))
print(len(run.predictions))
"""


@pytest.mark.processes
def test_a_killed_run_asks_only_the_rest(films: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(films), str(tmp_path)]
    killed = subprocess.run([*command, "die"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert not (tmp_path / "run/predictions.jsonl").exists()
    done = subprocess.run([*command, "live"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "12\n"
    assert (tmp_path / "calls").read_text() == "." * 12


# Studies and tasks


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    records = [study(tmp_path / "pictures", i, n_images=1 + i % 2) for i in range(4)]
    build_folder({"released": iter(records)}, tmp_path / "studies", FINDINGS, synthetic=True)
    return tmp_path / "studies"


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        ({"labels": ["Nodule", "Edema"]}, {"labels": ("Edema", "Nodule")}),
        ({"labels": []}, {"labels": ()}),
        (
            {"probabilities": {"Edema": 0.25, "Mass": np.float32(0.5), "Nodule": 1}},
            {"labels": None, "probabilities": {"Edema": 0.25, "Mass": 0.5, "Nodule": 1.0}},
        ),
    ],
    ids=["labels", "none", "probabilities"],
)
def test_studies(studies: Path, tmp_path: Path, answer: Answer, fields: dict[str, Any], batch_size: int | None) -> None:
    sizes: list[tuple[int, ...]] = []

    def predict(images: Any, finding: Any) -> Any:
        each = images if batch_size else [images]
        assert finding == ([None] * len(images) if batch_size else None)
        sizes.extend(tuple(int(film.info["image_id"].split("-")[1]) for film in films) for films in each)
        return [answer] * len(each) if batch_size else answer

    result = run_callable(predict, studies, "released", batch_size=batch_size)
    manifest = read_study_manifest(studies, "released")
    assert sorted(sizes) == [(0,), (10, 11), (20,), (30, 31)]
    assert result.predictions == tuple(FindingsPrediction(s, **fields) for s in manifest.studies)
    path = tmp_path / "labels.jsonl"
    path.write_text(result.to_jsonl())
    assert lint_findings(path, manifest).ok
    if "probabilities" not in fields:
        run_callable(predict, studies, "released", batch_size=batch_size, out=tmp_path / "run")
        assert (tmp_path / "run/predictions.jsonl").read_text() == result.to_jsonl()


def test_labels_and_probabilities_do_not_mix(studies: Path, tmp_path: Path) -> None:
    answers = iter([{"labels": []}, {"probabilities": dict.fromkeys(LABELS, 0.5)}])
    with pytest.raises(ValueError, match="the same for all studies, got probabilities after labels"):
        run_callable(lambda images, finding: next(answers), studies, "released", out=tmp_path / "run")
    with pytest.raises(ValueError, match="the same for all studies, got probabilities after labels"):  # going on
        run_callable(
            lambda images, finding: {"probabilities": {}}, studies, "released", out=tmp_path / "run", name="<lambda>"
        )


def test_open_tasks_are_not_for_callables(tmp_path: Path) -> None:
    build_folder({"released": iter([task(tmp_path / "pictures", 0)])}, tmp_path / "tasks", TASKS, synthetic=True)
    with pytest.raises(ValueError, match="`folder` must have a benchmark of localizations or labels, got one of tasks"):
        run_callable(lambda image, finding: None, tmp_path / "tasks", "released")


def test_the_example_of_the_docs(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model learns from 12 images; its answers to 24 others have no errors and are better than a guess."""
    pytest.importorskip("sklearn")
    runpy.run_path(str(ROOT / "docs/example_model.py"))["main"](films, tmp_path / "run", "test")
    predictions = tmp_path / "run/predictions.jsonl"
    assert f"reveal-bench score {tmp_path / 'run'} {films}\n" in capsys.readouterr().out
    manifest = read_manifest(films, "test")
    report = lint_predictions(predictions, manifest, LintOptions(allow_missing=True))
    assert {problem.rule for problem in report.problems} <= {"missing-pairs"}
    rows = score_localization(report.predictions, read_localization(films, "test"), findings=manifest.findings)
    assert np.nanmean(rows.values["grid_hit"]) > 2 * np.nanmean(rows.values["grid_chance"])
