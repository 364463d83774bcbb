"""A part of a split: scores of the findings, images, studies or tasks that were asked, and nothing about the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, roc_auc_score

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import LintError
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.predictions.limits import LintOptions
from tests.cli.test_score import call
from tests.conftest import World
from tests.kinds.folders import figures, studies, tasks

__all__ = ["studies", "tasks"]

FIVE = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
FEW = {"n_resamples": 20}


def probabilities(folder: Path, findings: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return random probabilities of some findings for every study, which agree with the references a little."""
    rng = np.random.default_rng(11)
    records = rb.load(folder).references
    return {
        one.study_id: {f: float(np.round(0.3 * (f in one.labels) + 0.7 * rng.random(), 3)) for f in findings}
        for one in records
    }


def test_findings_asked_are_scored_as_scikit_learn_scores_their_columns(studies: tuple[Path, Any]) -> None:
    folder = studies[0]
    bench = rb.load(folder)
    chosen = bench.info.findings[1:]
    answers = probabilities(folder, chosen)
    with pytest.raises(LintError, match="must hold every label"):
        rb.score(answers, bench)
    scored = rb.score(answers, bench.select(chosen), **FEW)
    present = np.array([[f in one.labels for f in chosen] for one in bench.references])
    scores = np.array([[answers[one.study_id][f] for f in chosen] for one in bench.references])
    own = figures(scored)
    defined = [i for i in range(2) if 0 < present[:, i].sum() < len(present)]
    areas = [roc_auc_score(present[:, i], scores[:, i]) for i in defined]
    assert own["auroc", MACRO] == pytest.approx(np.mean(areas), abs=1e-12)
    assert own["f1", chosen[defined[0]]] == pytest.approx(
        f1_score(present[:, defined[0]], scores[:, defined[0]] >= 0.5, zero_division=0), abs=1e-12
    )
    assert {finding for _, finding in own} - {MACRO, "all"} == set(chosen)


def test_answers_on_other_findings_are_left_out_by_count(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    chosen = bench.info.findings[:1]
    everything = probabilities(studies[0], bench.info.findings)
    scored = rb.score(everything, bench.select(chosen), **FEW)
    left_out = len(bench.info.findings) - 1
    (warning,) = (one for one in scored.scored.report.problems if one.rule == "not-asked")
    assert warning.message.startswith(f"answers on {left_out} findings that are not asked were left out")
    only = rb.score({key: {f: own[f] for f in chosen} for key, own in everything.items()}, bench.select(chosen), **FEW)
    assert figures(only) == pytest.approx(figures(scored), nan_ok=True)
    labels = {one.study_id: one.labels for one in bench.references}
    assert figures(rb.score(labels, bench.select(chosen), **FEW))["hamming_loss", "all"] == 0


def test_parquet_files_of_findings_are_scored_at_home(studies: tuple[Path, Any], tmp_path: Path) -> None:
    bench = rb.load(studies[0])
    answers = probabilities(studies[0], bench.info.findings)
    path = tmp_path / "mine.parquet"
    pd.DataFrame.from_dict(answers, orient="index").rename_axis("study_id").to_parquet(path)
    scored = rb.score(path, bench, **FEW)
    assert figures(scored) == pytest.approx(figures(rb.score(answers, bench, **FEW)), nan_ok=True)
    (warning,) = scored.scored.report.problems
    assert (warning.file, warning.message) == ("mine.parquet", "a leaderboard does not accept Parquet here")
    pd.DataFrame({"study_id": pd.Categorical(["a"]).repeat(1_000_001)}).to_parquet(path)
    with pytest.raises(
        ValueError, match=r"mine\.parquet: a Parquet file may have at most 1,000,000 rows, got 1,000,001"
    ):
        rb.score(path, bench, **FEW)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=r"mine\.parquet: not a readable Parquet file"):
        rb.score(path, bench, **FEW)


def test_part_is_named_in_title_document_and_signature(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    n, n_findings = len(bench.references), len(bench.info.findings)
    part = bench.select(bench.info.findings[:2], limit=4)
    answers = probabilities(studies[0], bench.info.findings)
    scored = rb.score(answers, part, **FEW)
    names = ", ".join(bench.info.findings[:2])
    named = rf"2 of {n_findings} findings \({names}\), 4 of {n} studies \(ids [0-9a-f]{{8}}\)"
    assert re.search(named, scored.caption)
    assert re.fullmatch(named, scored.to_document()["protocol"]["part"])
    assert all(re.search(rf"\|part:{named}\|", one.signature) for one in scored.scored.estimates)
    assert "part" not in rb.score(answers, bench, **FEW).to_document()["protocol"]
    other = bench.select(bench.info.findings[:2], ids=sorted(answers)[-4:])
    assert other.part != part.part
    compared = rb.compare(answers, answers, part, **FEW)
    assert all("|part:2 of" in one.signature for one in compared.comparisons)


def test_ids_asked_are_scored_as_if_the_split_held_them_alone(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    answers = probabilities(studies[0], bench.info.findings)
    ids = sorted(answers)[::2]
    part = rb.score({key: answers[key] for key in ids}, bench.select(ids=ids), **FEW)
    present = np.array(
        [[f in one.labels for f in bench.info.findings] for one in bench.references if one.study_id in ids]
    )
    called = np.array([[answers[one.study_id][f] >= 0.5 for f in bench.info.findings]
                       for one in bench.references if one.study_id in ids])  # fmt: skip
    assert figures(part)["f1_micro", "all"] == pytest.approx(f1_score(present, called, average="micro"), abs=1e-12)
    assert part.scored.report.missing_pairs == ()
    assert figures(rb.score(answers, bench.select(ids=ids), **FEW)) == pytest.approx(figures(part), nan_ok=True)


def test_localization_asks_pairs_of_the_findings_and_images_selected(world: World) -> None:
    bench = rb.load(world.folder)
    finding = bench.info.findings[1]
    images = list(bench.manifest.rows)[:9]
    part = bench.select([finding], ids=images)
    asked = [(image, finding) for image in images if finding in bench.manifest.rows[image].asked]
    assert part.manifest.asked_pairs() == asked
    answers = {image: {finding: {"point": [14, 15]}} for image, _ in asked}
    own = figures(rb.score(answers, part, **FEW))
    whole = rb.score(answers, bench, allow_missing=True, **FEW).scored.rows
    hit = [whole.values["point_hit"][i] for i, pair in enumerate(zip(whole.image_ids, whole.case_findings, strict=True))
           if pair in asked]  # fmt: skip
    assert own["point_hit", finding] == pytest.approx(np.mean(hit))
    assert {one for _, one in own} == {MACRO, finding}


def test_tasks_asked_are_a_part_of_all(tasks: tuple[Path, Path, Path]) -> None:
    folder, files, ratings = tasks
    file = sorted(files.glob("*.jsonl"))[0]
    bench = rb.load(folder)
    part = bench.select(limit=2)
    report = rb.lint(file, part)
    assert report.ok
    assert "warning: checked against 2 of" in report.render()
    assert "a leaderboard needs answers to the whole split" in report.render()
    assert "checked against" not in rb.lint(file, folder).render()
    assert len(report.predictions) == 2
    scored = rb.score(file, part, ratings=ratings, **FEW)
    assert len(scored.scored.rows) == 2


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"findings": "Edma"}, "`findings` must be findings of .*'Edma'"),
        ({"findings": []}, "`findings` must name at least one finding"),
        ({"ids": ["nobody"]}, "`ids` must be asked in .*'nobody'"),
        ({"ids": []}, "`ids` must be a list of ids of studies"),
        ({"limit": 0}, "`limit` must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_selections_are_refused(studies: tuple[Path, Any], how: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        rb.load(studies[0]).select(**how)


def test_pages_and_published_scores_take_only_a_whole_split(studies: tuple[Path, Any]) -> None:
    part = rb.load(studies[0]).select(limit=3)
    with pytest.raises(ArgumentError, match="`published` must be omitted for a selection"):
        rb.score(probabilities(studies[0], part.info.findings), part, published=True)
    with pytest.raises(ArgumentError, match="`bench` must be a whole split here"):
        rb.convert({}, part)


def test_command_line_asks_findings_and_ids(studies: tuple[Path, Any], tmp_path: Path) -> None:
    folder = studies[0]
    bench = rb.load(folder)
    chosen = bench.info.findings[1:]
    answers = probabilities(folder, chosen)
    for name in ("a", "b"):
        lines = [json.dumps({"study_id": key, "probabilities": own}) + "\n" for key, own in answers.items()]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    some = sorted(answers)[:5]
    (tmp_path / "ids.txt").write_text("\n".join([*some, "", ""]))
    (tmp_path / "systems").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").rename(tmp_path / "systems" / f"{name}.jsonl")
    part = ("--findings", ", ".join(chosen), "--subset", tmp_path / "ids.txt")
    file = tmp_path / "systems" / "a.jsonl"
    assert f"findings ({', '.join(chosen)}), 5 of" in call("score", file, folder, *part).stdout
    assert "0 errors" in call("lint", file, folder, *part).stdout
    for words in (("compare", file, file), ("rank", tmp_path / "systems")):
        assert f"2 of {len(bench.info.findings)} findings" in call(*words, folder, *part).stdout


def scores_of(answers: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return logits, as some models give: the same order on another scale."""
    return {key: {f: float(np.log((p + 1e-3) / (1.001 - p))) for f, p in own.items()} for key, own in answers.items()}


def test_scores_on_any_scale_have_the_metrics_that_need_only_their_order(studies: tuple[Path, Any]) -> None:
    folder = studies[0]
    bench = rb.load(folder)
    answers = probabilities(folder, bench.info.findings)
    scored, whole = rb.score(scores_of(answers), bench, **FEW), rb.score(answers, bench, **FEW)
    assert {metric for metric, _ in figures(scored)} == {"auroc", "average_precision"}
    assert figures(scored) == pytest.approx(
        {k: v for k, v in figures(whole).items() if k in figures(scored)}, nan_ok=True
    )
    (warning,) = scored.scored.report.problems
    assert warning.hint.startswith("a logit? apply the sigmoid first")
    assert warning.rule == "score-scale"
    assert "only the order counts" in warning.message
    assert warning.hint.endswith("A leaderboard refuses such scores")
    decided = {key: value for key, value in figures(whole).items() if key[0] != "log_loss"}
    at = dict.fromkeys(bench.info.findings, 0.0)  # the logit of about 1/2
    assert figures(rb.score(scores_of(answers), bench, thresholds=at, **FEW)) == pytest.approx(decided, nan_ok=True)
    half = rb.score(scores_of(answers), bench, thresholds=0.5, **FEW)  # logits of at least 0.5
    odds = float(np.exp(0.5))
    cut = dict.fromkeys(bench.info.findings, (1.001 * odds - 0.001) / (1 + odds))
    expected = figures(rb.score(answers, bench, thresholds=cut, **FEW))
    decided = {key: value for key, value in expected.items() if key[0] != "log_loss"}
    assert figures(half) == pytest.approx(decided, nan_ok=True)
    with pytest.raises(ArgumentError, match=r"must be in \[0, 1\]; for logits, .*torch.sigmoid"):
        rb.confidence(scores_of(answers), bench)
    assert {one.metric for one in rb.compare(scores_of(answers), answers, bench, **FEW).comparisons} == {
        "auroc", "average_precision",
    }  # fmt: skip
    assert rb.rank({"a": scores_of(answers), "b": answers}, bench, **FEW).metric == "auroc"


def test_study_without_scores_ranks_below_all_others(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    answers = scores_of(probabilities(studies[0], bench.info.findings))
    del answers[bench.references[0].study_id]
    rows = rb.score(answers, bench, allow_missing=True, **FEW).scored.rows
    assert (rows.probabilities[0] < rows.probabilities[1:]).all()


def test_codes_of_uncertain_labels_are_no_scores(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    codes = {
        key: {f: float(round(p)) for f, p in own.items()}
        for key, own in probabilities(studies[0], bench.info.findings).items()
    }
    codes[bench.references[0].study_id][bench.info.findings[0]] = -1.0
    with pytest.raises(LintError, match=r"must be in \[0, 1\], got -1"):
        rb.score(codes, bench)


def test_thresholds_of_scores_on_another_scale_must_name_every_finding(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    scores = scores_of(probabilities(studies[0], bench.info.findings))
    first = bench.info.findings[0]
    with pytest.raises(ArgumentError, match=r"`thresholds` must name every finding that is scored.*got none for"):
        rb.score(scores, bench, thresholds={first: 0.1})
    with pytest.raises(ArgumentError, match="`thresholds` must be a finite number"):
        rb.score(scores, bench, thresholds=float("nan"))
    only = rb.score(scores, bench.select(first), thresholds=dict.fromkeys(bench.info.findings, 0.1), **FEW)
    assert ("f1", first) in figures(only)  # thresholds of findings that are not asked are left out
    with pytest.raises(ArgumentError, match="must be given for scores outside"):
        rb.operating_points(scores, bench)
    assert {one.metric for one in rb.score(scores, bench, by="sex", **FEW).subgroups.groups} == {"auroc"}


def test_huge_scores_of_missing_studies_are_below_the_lowest(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    scores = scores_of(probabilities(studies[0], bench.info.findings))
    huge = {key: {f: 1e290 * one for f, one in own.items()} for key, own in scores.items()}
    for answers in (scores, huge):
        del answers[bench.references[0].study_id]
    plain, large = (figures(rb.score(one, bench, allow_missing=True, **FEW)) for one in (scores, huge))
    assert plain == pytest.approx(large, nan_ok=True)


def test_selecting_everything_is_the_whole_split_and_the_order_does_not_matter(world: World) -> None:
    bench = rb.load(world.folder)
    assert bench.select(bench.info.findings).select(limit=100_000) == bench
    finding = bench.info.findings[2]
    assert bench.select(finding, limit=3) == bench.select(finding).select(limit=3)
    none = next(image for image, row in bench.manifest.rows.items() if row.asked and finding not in row.asked)
    with pytest.raises(ArgumentError, match="`findings` must be asked in"):
        bench.select(ids=[none]).select(finding)


def test_systems_scored_on_different_parts_are_not_compared(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    answers = probabilities(studies[0], bench.info.findings)
    part, whole = (rb.score(answers, one, **FEW) for one in (bench.select(limit=4), bench))
    with pytest.raises(ArgumentError, match="`b` must be scored on the same part of the split, got 4 of 6 studies"):
        rb.compare(part, whole, bench)
    assert "|part:4 of" in rb.compare(part, part, bench, **FEW).comparisons[0].signature


def test_groups_without_an_asked_finding_are_refused_if_given(studies: tuple[Path, Any]) -> None:
    bench = rb.load(studies[0])
    first, second, *_ = bench.info.findings
    answers = probabilities(studies[0], bench.info.findings)
    groups = {"one": [first], "other": [second]}
    with pytest.raises(ArgumentError, match="must each have a finding that is asked, got 'other'"):
        rb.score(answers, bench.select([first]), finding_groups=groups, **FEW)
    scored = rb.score(answers, bench.select([first]), finding_groups={"one": [first, second]}, **FEW)
    assert scored.scored.options.finding_groups == {"one": (first,)}


def test_only_local_checks_suggest_fewer_findings(studies: tuple[Path, Any], tmp_path: Path) -> None:
    bench = rb.load(studies[0])
    first = bench.info.findings[0]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f"{json.dumps({'study_id': one.study_id, 'probabilities': {first: 0.5}})}\n"
                            for one in bench.references))  # fmt: skip
    advice = f'`--findings "{first}"` (`bench.select("{first}")`) scores only the labels present'
    assert advice in rb.lint(file, bench).render()
    at_board = bench.kind.predictions.lint(file, bench.manifest, LintOptions(whole_split=True))
    assert "must hold every label" in at_board.render()
    assert "--findings" not in at_board.render()


def test_scores_on_any_scale_are_shown_but_not_judged_or_disclosed(studies: tuple[Path, Any], tmp_path: Path) -> None:
    from reveal_bench.kinds.findings.arrays import FindingsCodec
    from reveal_bench.viewer.gallery import _answers

    bench = rb.load(studies[0])
    answers = scores_of(probabilities(studies[0], bench.info.findings))
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f"{json.dumps({'study_id': key, 'probabilities': own})}\n" for key, own in answers.items()))
    scored = rb.score(file, bench, **FEW).scored
    shown = _answers(bench.kind, file, list(bench.references), bench.manifest, scored.options)
    (first, *_), key = bench.info.findings, bench.references[0].study_id
    assert shown[key][0].is_hit is None
    assert shown[key][0].words == f"score {answers[key][first]:.2f}"
    with pytest.raises(ArgumentError, match="must have decisions"):
        FindingsCodec().arrays_of_rows(scored.rows)
