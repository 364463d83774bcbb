"""Runs that asked only a part of a split, or got no usable answer, scored over the questions that they asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reveal_bench as rb
from reveal_bench.api.bench import as_asked_bench
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import LintError
from reveal_bench.masks import encode_mask
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.models.callables import CallableRun
from reveal_bench.models.questions import AskSettings, Form
from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, read_run, write_outputs
from tests.cli.test_score import call
from tests.conftest import World
from tests.kinds.folders import figures, studies

__all__ = ["studies"]

FEW = {"n_resamples": 20}
SIDE_FILES = ("cam.jsonl.options.json", "cam.jsonl.tuning.csv", "cam.jsonl.gates.csv")


def write_run(out: Path, bench: rb.Bench, asked: Sequence[Any], answers: Mapping[Any, Any], **changes: Any) -> Path:
    """Write the folder of a run that asked some questions: pairs with a cell as answer, or studies with labels."""
    is_pair = bench.kind.name == "localization"
    outcomes = []
    for one in asked:
        unit, finding = one if is_pair else (one, None)
        answer = {"cell" if is_pair else "labels": answers[one]} if one in answers else {}
        status = "answered" if answer else "refused"
        outcomes.append(QuestionOutcome("|".join(filter(None, (unit, finding))), unit, status, finding, **answer))
    facts = {"n_questions": len(bench.cases.records), "n_asked": len(asked), "model": out.name, "grid": 8} | changes
    write_outputs(
        out, outcomes, RunInfo(bench.info.benchmark, bench.info.version, bench.split, bench.kind.name, **facts)
    )
    return out


def cut_pairs(bench: rb.Bench) -> list[tuple[str, str]]:
    """The first questions of a localization split; of the last image, only one question of several."""
    pairs = bench.manifest.asked_pairs()
    n = next(i for i in range(5, len(pairs)) if pairs[i][0] == pairs[i - 1][0] != pairs[i - 2][0])
    return pairs[:n]


def test_pilot_is_scored_over_its_questions_as_a_split_of_its_own(world: World, tmp_path: Path) -> None:
    bench = rb.load(world.folder)
    asked = cut_pairs(bench)
    n_images = len({image for image, _ in asked})
    pilot = write_run(tmp_path / "pilot", bench, asked, dict.fromkeys(asked[1:], "D4"))
    result = rb.score(pilot, bench, **FEW)
    everything = {i: {f: {"cell": "D4"} for f in row.asked} for i, row in bench.manifest.rows.items() if row.asked}
    rows = rb.score(everything, bench, **FEW).scored.rows
    hits: dict[str, list[float]] = {}
    for pair, hit in zip(zip(rows.image_ids, rows.case_findings, strict=True), rows.values["grid_hit"], strict=True):
        if pair in asked:
            hits.setdefault(pair[1], []).append(float(hit) if pair != asked[0] else 0.0)
    means = [sum(own) / len(own) for own in hits.values()]
    assert figures(result)["grid_hit", MACRO] == pytest.approx(sum(means) / len(means))
    n_all = len(bench.manifest.asked_pairs())
    part = f"{len(asked)} of {n_all} questions, {n_images} of {len(bench.manifest.rows)} images (ids "
    assert part in result.caption
    assert result.to_document()["protocol"]["part"].startswith(part)
    assert part in result.to_csv().splitlines()[1]
    assert f"\n\nScores of {part}" in result.to_markdown()
    assert result.scored.report.missing_pairs == (asked[0],)
    assert str(n_all - len(asked)) not in " ".join(one.message for one in result.scored.report.problems)
    assert rb.lint(pilot / "predictions.jsonl", bench).missing_pairs == (asked[0],)


def test_findings_not_asked_about_an_image_are_unlabelled(world: World, tmp_path: Path) -> None:
    """Detection asks about findings that are absent, too, and looks up the label of every finding."""
    bench = rb.load(world.folder)
    asked = cut_pairs(bench)
    part = as_asked_bench(bench, runs=[write_run(tmp_path / "pilot", bench, asked, {})])
    whole = {record.image_id: record for record in bench.references}
    assert {record.image_id for record in part.references} == {image for image, _ in asked}
    for record in part.references:
        labels = {finding: status if (record.image_id, finding) in asked else None
                  for finding, status in whole[record.image_id].label_status.items()}  # fmt: skip
        assert record.label_status == labels
        assert {one.finding for one in record.annotations} == {f for f, status in labels.items() if status}


def test_interrupted_run_is_scored_over_the_questions_in_its_transcript(world: World, tmp_path: Path) -> None:
    bench = rb.load(world.folder)
    pairs = bench.manifest.asked_pairs()
    asked = [pair for pair in pairs if pair[0] in {pairs[0][0], pairs[-1][0]}]  # whole images
    run = write_run(tmp_path / "run", bench, asked, dict.fromkeys(asked, "C3"), n_asked=len(pairs))
    same = rb.score({image: {f: {"cell": "C3"} for i, f in asked if i == image} for image, _ in asked},
                    bench.select(ids=[pairs[0][0], pairs[-1][0]]), **FEW)  # fmt: skip
    own = rb.score(run, bench, **FEW)
    assert figures(own) == pytest.approx(figures(same), nan_ok=True)
    assert own.scored.options.part == same.scored.options.part


def test_whole_run_and_copied_file_are_scored_over_the_split(world: World, tmp_path: Path) -> None:
    bench = rb.load(world.folder)
    pairs = bench.manifest.asked_pairs()
    whole = write_run(tmp_path / "whole", bench, pairs, dict.fromkeys(pairs, "C3"))
    assert rb.score(whole, bench, **FEW).scored.options.part == ""
    pilot = write_run(tmp_path / "pilot", bench, pairs[:4], dict.fromkeys(pairs[:4], "C3"))
    shutil.copy(pilot / "predictions.jsonl", tmp_path / "copy.jsonl")
    assert len(rb.score(tmp_path / "copy.jsonl", bench, allow_missing=True, **FEW).scored.rows) == len(pairs)
    (pilot / "transcript.jsonl").write_text('{"question": "a"}\n')
    with pytest.raises(ValueError, match=r"transcript\.jsonl:1: not a line of a transcript: KeyError"):
        rb.score(pilot, bench)


def test_pilot_of_studies_is_scored_and_compared_over_the_same_studies(studies: Any, tmp_path: Path) -> None:
    bench = rb.load(studies[0])
    labels = {one.study_id: tuple(one.labels) for one in bench.references}
    asked = list(labels)[:2]
    pilot = write_run(tmp_path / "pilot", bench, asked, {asked[0]: labels[asked[0]], asked[1]: ()})
    result = rb.score(pilot, bench, **FEW)
    n_right, n_missed = len(labels[asked[0]]), len(labels[asked[1]])
    assert figures(result)["f1_micro", "all"] == pytest.approx(2 * n_right / (2 * n_right + n_missed))
    assert f"2 of {len(labels)} studies (ids " in result.caption
    compared = rb.compare(studies[1] / "right.jsonl", pilot, bench, **FEW)
    assert f"2 of {len(labels)} studies (ids " in compared.caption
    other = write_run(tmp_path / "other", bench, list(labels)[1:4], {})
    ranked = rb.rank({"pilot": pilot, "other": other, "right": studies[1] / "right.jsonl"}, bench, **FEW)
    assert f"1 of {len(labels)} studies (ids " in ranked.caption  # the second study, which both runs asked
    apart = write_run(tmp_path / "apart", bench, list(labels)[4:], {})
    with pytest.raises(ArgumentError, match="must answer some of the same questions"):
        rb.compare(pilot, apart, bench, **FEW)


def test_first_epoch_is_scored_and_the_shortest_run_named(world: World, tmp_path: Path) -> None:
    bench, runs = rb.load(world.folder), tmp_path / "runs"
    pairs = bench.manifest.asked_pairs()
    twice = write_run(runs / "twice", bench, pairs, dict.fromkeys(pairs, "C3"), epochs=2)
    once = write_run(tmp_path / "once", bench, pairs, dict.fromkeys(pairs, "C3"))
    write_run(runs / "pilot", bench, pairs[:5], dict.fromkeys(pairs, "D4"))
    result = rb.score(twice, bench, **FEW)
    assert figures(result) == pytest.approx(figures(rb.score(once, bench, **FEW)), nan_ok=True)
    (warning,) = result.scored.report.problems
    assert (warning.message, warning.hint.rpartition(" ")[2]) == ("only epoch 1 of 2 is scored", "predictions-2.jsonl")
    done = call("rank", runs, world.folder, "--resamples", 20)
    assert "warning: pilot asked only 5 questions: leave it out to score more" in done.stderr


def test_run_on_another_kind_of_benchmark_is_named(world: World, studies: Any, tmp_path: Path) -> None:
    of_studies = rb.load(studies[0])
    ids = [one.study_id for one in of_studies.references]
    other = write_run(tmp_path / "other", of_studies, ids[:2], {})
    line = (other / "run.json").read_text().replace(f'"split": "{of_studies.split}"', '"split": "released"')
    (other / "run.json").write_text(line)
    with pytest.raises(ValueError, match=f"a run on this benchmark.*, got a run on {of_studies.info.benchmark}"):
        rb.score(other, rb.load(world.folder), **FEW)


def test_run_with_every_question_refused_scores_0(world: World, studies: Any, tmp_path: Path) -> None:
    bench = rb.load(world.folder)
    pairs = bench.manifest.asked_pairs()
    refused = write_run(tmp_path / "refused", bench, pairs, {})
    own = figures(rb.score(refused, bench, **FEW))
    assert {own[metric, MACRO] for metric in ("point_hit", "grid_hit")} == {0}
    n = len(pairs)
    message = f"{n} of {n} questions have no usable answer: {n} refused"
    assert message in call("score", refused, world.folder, "--resamples", 20).stderr
    of_studies = rb.load(studies[0])
    ids = [one.study_id for one in of_studies.references]
    result = rb.score(write_run(tmp_path / "studies", of_studies, ids[:3], {}), of_studies, **FEW)
    assert {figures(result)[metric, MACRO] for metric in ("recall", "specificity", "npv")} == {0}
    assert f"3 of {len(ids)} studies" in result.caption


@pytest.mark.parametrize("form", ["cell", "point", "box"])
def test_form_that_a_refused_run_asked_for_decides_its_metrics(world: World, tmp_path: Path, form: Form) -> None:
    bench = rb.load(world.folder)
    refused = write_run(tmp_path / "run", bench, bench.manifest.asked_pairs(), {}, settings=AskSettings(form=form))
    ranked = rb.rank({"refused": refused}, bench, **FEW)
    assert ranked.metric == ("grid_hit" if form == "cell" else "point_hit")
    assert ("box_iou" in ranked.scored["refused"].rows.metrics()) == (form == "box")


def test_unanswered_questions_of_a_run_are_misses_but_not_those_that_a_file_lacks(
    world: World, studies: Any, tmp_path: Path
) -> None:
    """Two of five questions were refused; a line removed from the file is missing as in a file of one's own."""
    bench = rb.load(world.folder)
    pairs = bench.manifest.asked_pairs()[:5]
    run = write_run(tmp_path / "run", bench, pairs, dict.fromkeys(pairs[2:], "C3"))
    (problem,) = rb.score(run, bench, **FEW).scored.report.problems
    assert problem.message == "2 of 5 questions have no usable answer: 2 refused"
    assert rb.compare(run, run, bench, **FEW).comparisons
    lines = (run / "predictions.jsonl").read_text().splitlines(keepends=True)
    (run / "predictions.jsonl").write_text("".join(lines[1:]))
    with pytest.raises(LintError, match="3 of 5 asked pairs have no prediction"):
        rb.score(run, bench, **FEW)
    of_studies = rb.load(studies[0])
    ids = [one.study_id for one in of_studies.references][:3]
    result = rb.score(write_run(tmp_path / "studies", of_studies, ids, {ids[0]: ()}), of_studies, **FEW)
    assert len(result.scored.report.missing_pairs) == 2
    assert result.scored.protocol["allow_missing"] is True


def test_empty_run_is_named_and_the_others_are_ranked(world: World, tmp_path: Path) -> None:
    bench, runs = rb.load(world.folder), tmp_path / "runs"
    pairs = bench.manifest.asked_pairs()
    write_run(runs / "A", bench, pairs, dict.fromkeys(pairs, "C3"))
    write_run(runs / "refused", bench, pairs, {})
    for name, record in (("B", "{}"), ("C", None)):
        (runs / name).mkdir()
        (runs / name / "predictions.jsonl").write_text("")
        if record is not None:
            (runs / name / "run.json").write_text(record)
    for name, files in {"killed": ("run.json",), "notes": ("readme.txt",)}.items():
        (runs / name).mkdir()
        for file in files:
            (runs / name / file).write_text("{}")
    for name in SIDE_FILES:
        (runs / name).write_text("{}")
    done = call("rank", runs, world.folder, "--resamples", 20, "--json")
    assert [(one["name"], one["rank"]) for one in json.loads(done.stdout)["systems"]] == [("A", 1), ("refused", 2)]
    for name in "BC":
        assert f"{runs / name / 'predictions.jsonl'} is not ranked: the file contains no predictions" in done.stderr
    assert f"{runs / 'killed'} is not ranked: it has no predictions, because its run was killed: repeat" in done.stderr
    assert f"{runs / 'notes'} is not ranked: it has no predictions\n" in done.stderr
    (runs / "B" / "predictions.jsonl").write_text("no JSON\n")
    with pytest.raises(LintError, match=r"^B/predictions\.jsonl was not scored"):
        rb.rank(runs, bench)
    with pytest.raises(ArgumentError, match="must have predictions, got only empty files: C"):
        rb.rank({"C": runs / "C"}, bench)


def test_run_of_another_split_is_named_and_the_others_are_ranked(world: World, tmp_path: Path) -> None:
    bench, runs = rb.load(world.folder), tmp_path / "runs"
    pairs = bench.manifest.asked_pairs()
    for name in "AB":
        write_run(runs / name, bench, pairs, dict.fromkeys(pairs, "C3"))
    record = runs / "B" / "run.json"
    record.write_text(record.read_text().replace(f'"split": "{bench.split}"', '"split": "holdout"'))
    assert "--split must be the same" in call("rank", runs, world.folder, expect=1).stderr
    done = call("rank", runs, world.folder, "--split", bench.split, "--resamples", 20, "--json")
    assert [one["name"] for one in json.loads(done.stdout)["systems"]] == ["A"]
    assert f"{runs / 'B' / 'predictions.jsonl'} is not ranked: its run answered split 'holdout'" in done.stderr


@pytest.mark.parametrize("command", ["score", "lint"])
def test_limit_asks_the_first_images(world: World, tmp_path: Path, command: str) -> None:
    images = [row for row in rb.load(world.folder).manifest.rows.values() if row.asked]
    lines = [json.dumps({"image_id": row.image_id, "finding": finding, "point": [9, 9]}) + "\n"
             for row in images[:3] for finding in row.asked]  # fmt: skip
    (tmp_path / "file.jsonl").write_text("".join(lines))
    words = (command, tmp_path / "file.jsonl", world.folder, *(("--resamples", 20) if command == "score" else ()))
    assert "have no prediction" in call(*words, expect=1).stdout + call(*words, expect=1).stderr
    printed = call(*words, "--limit", 3).stdout
    assert ("3 of " if command == "score" else "0 errors, 1 warning: accepted") in printed


def test_own_thresholds_and_further_tables_keep_to_the_part(world: World, tmp_path: Path) -> None:
    bench, runs = rb.load(world.folder), tmp_path / "runs"
    pairs, asked = bench.manifest.asked_pairs(), cut_pairs(bench)
    write_run(runs / "whole", bench, pairs, dict.fromkeys(pairs, "C3"))
    pilot = write_run(runs / "pilot", bench, asked, dict.fromkeys(asked, "D4"))
    (runs / "empty").mkdir()
    (runs / "empty" / "predictions.jsonl").write_text("")
    few = ("--resamples", 20, "--own-thresholds")
    assert f"{len(asked)} of {len(pairs)} questions" in call("rank", runs, world.folder, *few).stdout
    compared = call("compare", pilot / "predictions.jsonl", runs / "whole", world.folder, *few)
    assert f"{len(asked)} of {len(pairs)} questions" in compared.stdout


def test_tables_of_masks_keep_to_the_part(world: World, tmp_path: Path) -> None:
    images = [row for row in rb.load(world.folder).manifest.rows.values() if row.asked][:2]
    lines = []
    for row in images:
        rle = encode_mask(np.pad(np.ones((8, 8), bool), ((0, row.height - 8), (0, row.width - 8))))
        mask = {"size": list(rle.size), "counts": rle.counts}
        lines += [
            json.dumps({"image_id": row.image_id, "finding": finding, "rle": mask}) + "\n" for finding in row.asked
        ]
    (tmp_path / "masks.jsonl").write_text("".join(lines))
    files = {name: tmp_path / f"{name}.csv" for name in ("pixels", "boundaries")}
    words = [word for name in files for word in (f"--{name}", files[name])]
    call("score", tmp_path / "masks.jsonl", world.folder, "--limit", 2, "--resamples", 20, *words)
    for file in files.values():  # without `--limit`, the file lacks answers
        assert len(file.read_text().splitlines()) > 1


def test_run_in_memory_is_scored_like_its_folder(studies: tuple[Path, Any], tmp_path: Path) -> None:
    bench = rb.load(studies[0])
    asked = list(bench.ids)[:3]
    folder = write_run(tmp_path / "run", bench, asked, dict.fromkeys(asked, bench.info.findings[:1]), grid=None)
    run = read_run(folder)
    answers = rb.lint(folder, bench).predictions
    in_memory = CallableRun(answers, (), (), run.info, run.exchanges)  # type: ignore[arg-type]
    own, same = rb.score(in_memory, bench, **FEW), rb.score(folder, bench, **FEW)
    assert own.scored.options.part == same.scored.options.part != ""
    assert figures(own) == pytest.approx(figures(same), nan_ok=True)
    one = write_run(tmp_path / "one", bench, asked, {asked[0]: bench.info.findings[:1]}, grid=None)
    refused = rb.score(read_run(one), bench, **FEW)  # its missing answers need no permission either
    assert len(refused.scored.report.missing_pairs) == len(asked) - 1
    assert figures(refused) == pytest.approx(figures(rb.score(one, bench, **FEW)), nan_ok=True)
