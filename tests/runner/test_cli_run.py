"""The commands that ask models and report on them, from a film to a page, as their user gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from reveal_bench.runner.outputs import read_run
from tests.runner.conftest import Truth, playing
from tests.runner.endpoint import PlayedModel
from tests.test_cli import call


@pytest.fixture(scope="module")
def ran(films: Path, truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, PlayedModel, str]]:
    """A run by the command line; one question is refused."""
    out = tmp_path_factory.mktemp("ran") / "chat"
    refused = truth.questions[0][0]
    with playing(truth, faults={refused: ["refusal"]}) as (model, _):
        done = call(*words(films, model, out), "--price-in", "2.5", "--price-out", "10")
        yield out, model, done.stdout


def words(films: Path, model: PlayedModel, out: Path) -> list[object]:
    return ["run", films, "--split", "test", "--model", "chat", "--endpoint", model.url, "--out", out]


def test_a_run_says_what_became_of_it(ran: tuple[Path, PlayedModel, str], truth: Truth, films: Path) -> None:
    out, model, said = ran
    n = len(truth.questions)
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line}
    assert rows["all"] == [str(n), str(n - 1), "1"]  # asked, answered, refused
    tokens_in, _, tokens_out = (sum(column) for column in zip(*model.usage, strict=True))
    cost = (tokens_in * Decimal("2.5") + tokens_out * 10) / 1_000_000
    assert f"{tokens_in:,} in" in said
    assert f"{tokens_out:,} out; cost {cost.normalize():f}\n" in said
    assert f"reveal-bench score {out / 'predictions.jsonl'} {films} --split test --allow-missing" in said
    assert len((out / "predictions.jsonl").read_text().splitlines()) == n - 1


def test_what_it_says_next_works(ran: tuple[Path, PlayedModel, str], truth: Truth, films: Path) -> None:
    _, _, said = ran
    (line,) = [line for line in said.splitlines() if line.startswith("score: reveal-bench ")]
    document = json.loads(call(*line.removeprefix("score: reveal-bench ").split(), "--json").stdout)
    rows = [row for row in document["estimates"] if row["metric"] == "grid_hit" and row["finding"] != "macro"]
    hits = sum(round(row["value"] * row["n"]) for row in rows if row["n"])
    assert sum(row["n"] for row in rows) == len(truth.questions)
    assert hits == len(truth.questions) - 1


def test_given_again_it_asks_nothing_and_another_run_is_refused(
    ran: tuple[Path, PlayedModel, str], films: Path
) -> None:
    out, model, _ = ran
    asked, before = len(model.asked), (out / "transcript.jsonl").read_bytes()
    call(*words(films, model, out), "--price-in", "2.5", "--price-out", "10")
    assert len(model.asked) == asked
    assert (out / "transcript.jsonl").read_bytes() == before
    refused = call(*words(films, model, out), "--grid", "16", expect=1).stderr
    assert "holds another run: run.json says" in refused


def test_logs_become_the_same_run(ran: tuple[Path, PlayedModel, str], tmp_path: Path) -> None:
    out, _, _ = ran
    call("import-inspect", out / "logs", "--out", tmp_path / "again", "--price-in", "2.5", "--price-out", "10")
    for name in ("transcript.jsonl", "predictions.jsonl", "summary.json"):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes(), name


def test_a_dry_run_asks_nobody(films: Path, truth: Truth, tmp_path: Path) -> None:
    said = call("run", films, "--split", "test", "--prompt", "few-shot", "--limit", 3, "--dry-run", tmp_path / "dry")
    assert said.stdout.startswith(f"wrote 3 questions to {tmp_path / 'dry'}: ")
    asked = [path.name for path in (tmp_path / "dry" / "questions").iterdir()]
    assert len(asked) == 3
    page = (tmp_path / "dry" / "index.html").read_text(encoding="utf-8")
    assert all(finding in page for _, finding, _ in truth.questions[:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "`--model` and `--out` must be given, or `--dry-run`"),
        (("--model", "chat", "--out", "x", "--temperature", "warm"), "`--temperature` must be a number or `none`"),
        (("--model", "chat", "--out", "x", "--price-in", "1"), "give both of `--price-in` and `--price-out`"),
        (("--model", "chat", "--out", "x"), "`model` must be provider/name, or have an endpoint, got 'chat'"),
        (("--answer", "labels", "--dry-run", "x"), "`form` must be one of cell, point, box"),
        (("--grid", "20", "--side", "64", "--dry-run", "x"), "`side` must be at least"),
    ],
)
def test_what_cannot_be_is_said(films: Path, options: tuple[str, ...], message: str) -> None:
    assert message in call("run", films, "--split", "test", *options, expect=1).stderr


def test_report_and_misses(ran: tuple[Path, PlayedModel, str], films: Path, tmp_path: Path) -> None:
    out, _, _ = ran
    call("baseline", "chance", films, "--split", "test", "--out", tmp_path / "chance.jsonl")
    both = (f"chat={out}", f"chance={tmp_path / 'chance.jsonl'}", "--folder", films)
    said = call("report", *both, "--split", "test", "--out", tmp_path / "report", "--resamples", 50).stdout
    assert said == f"wrote {tmp_path / 'report' / 'report.html'}\n"
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "chance" in page
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"report.html", "figures", "tables"}
    said = call("misses", *both, "--split", "test", "--out", tmp_path / "misses", "--most", 2).stdout
    lines = (tmp_path / "misses" / "for_readers" / "misses.jsonl").read_text().splitlines()
    assert f"wrote {len(lines)} misses to {tmp_path / 'misses'}" in said
    assert "`--folder`" in call("report", out, tmp_path / "chance.jsonl", expect=1).stderr


def test_the_phantom_tells_where_its_organs_are(tmp_path: Path) -> None:
    sized = ("--images", 2, "--val-images", 1, "--long-side", 128, "--anatomy", tmp_path / "anatomy.jsonl")
    call("phantom", tmp_path / "download", *sized)
    lines = [json.loads(line) for line in (tmp_path / "anatomy.jsonl").read_text().splitlines()]
    assert {"image_id", "size", "regions"} <= set(lines[0])
    refused = call("phantom", tmp_path / "b", "--style", "reveal-cxr", "--anatomy", tmp_path / "b.jsonl", expect=1)
    assert "`--anatomy` is for --style chexlocalize alone" in refused.stderr


def test_tasks_for_lmms_eval(films: Path, tmp_path: Path) -> None:
    said = call("export-lmms", films, "--split", "test", "--limit", 4, "--out", tmp_path / "lmms").stdout
    readme = tmp_path / "lmms" / "README.md"
    assert said == f"wrote the task reveal_grid to {tmp_path / 'lmms'}; how to run and import it: {readme}\n"
    assert "--tasks reveal_grid" in readme.read_text(encoding="utf-8")
    nothing = call("import-lmms", tmp_path, "--tasks", tmp_path / "lmms", "--out", tmp_path / "run", expect=1)
    assert nothing.stderr.startswith("error: ")


def test_the_run_reads_back(ran: tuple[Path, PlayedModel, str], truth: Truth) -> None:
    run = read_run(ran[0])
    assert [exchange.question for exchange in run.exchanges] == [question for question, _, _ in truth.questions]
    assert run.exchanges[0].status == "refused"
