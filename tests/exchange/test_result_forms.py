"""Results in other formats: each against its owner's schema, and never finer than the release."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from markdown_it import MarkdownIt

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.card import Config, render_eval_yaml
from reveal_bench.exchange.checklists import Recorded, claim_table
from reveal_bench.exchange.facts import Result, of_receipt, of_score, read_result
from reveal_bench.exchange.hub_results import eval_results
from reveal_bench.exchange.paper import latex_table, markdown_table
from reveal_bench.exchange.receipts import ReceiptError
from reveal_bench.kinds import KINDS
from tests.exchange.schemas import EVAL_RESULTS
from tests.exchange.test_receipts import KEY, STRANGER, make, public

HOSTILE = "A|B <img src=x> [l](http://e.org) *b* 50% of_{x} \\input{y} $z$ ~ ^ #1 & `c`"
SIGNATURE = "point_hit|b:1000|seed:0|unit:patient|v:1"


def figure(**changes: Any) -> dict[str, Any]:
    return {
        "metric": "point_hit", "finding": "macro", "value": "0.47", "low": "0.42", "high": "0.52", "n": "5",
        "signature": SIGNATURE,
    } | changes  # fmt: skip


def receipt(*figures: dict[str, Any], **changes: Any) -> dict[str, Any]:
    printed = [*figures] or [figure(), figure(finding="Edema", value="0.5", low="0.3", high=None, n="60-119")]
    return make(released={"figures": printed}, **changes)


SCORE: dict[str, Any] = {
    "schema": 1, "benchmark": "reveal-cxr", "version": "1.2.0", "split": "released", "references_sha256": "ab" * 32,
    "file": "p.jsonl", "file_sha256": "cd" * 32, "format": "jsonl", "n_predictions": 90, "n_missing": 10,
    "protocol": {"n_resamples": 500, "seed": 3, "unit": "study", "interval": "bca", "allow_missing": True},
    "estimates": [
        {
            "metric": "f1", "finding": "macro", "value": 0.61249, "low": 0.5, "high": 0.71, "n": 11, "n_undefined": 1,
            "n_empty_replicates": 0, "signature": "f1|b:500|seed:3|unit:study|i:bca|v:1",
        },
        {
            "metric": "f1", "finding": "Edema", "value": 0.7, "low": 0.6, "high": 0.8, "n": 90, "n_undefined": 0,
            "n_empty_replicates": 0, "signature": "f1|b:500|seed:3|unit:study|i:bca|v:1",
        },
        {
            "metric": "f1", "finding": "Mass", "value": None, "low": None, "high": None, "n": 0, "n_undefined": 90,
            "n_empty_replicates": 500, "signature": "f1|b:500|seed:3|unit:study|i:bca|v:1",
        },
    ],
    "strata": {}, "notes": [], "software": {"name": "reveal-bench", "version": "0.1.0"},
}  # fmt: skip

BOTH = [of_receipt(receipt()), of_score(SCORE, "Model A")]


@pytest.mark.parametrize("result", BOTH, ids=["receipt", "score"])
@pytest.mark.parametrize("url", [None, "https://board.example.org/entry?id=1"])
def test_eval_results_are_in_the_form_of_the_hub(result: Result, url: str | None) -> None:
    (entry,) = yaml.safe_load(eval_results(result, dataset="lab/data", revision="0f" * 20, url=url))
    jsonschema.Draft7Validator(EVAL_RESULTS).validate([entry])
    task = f"{result.benchmark.replace('-', '_')}_{result.split}_{result.headline().metric}"
    assert entry["dataset"] == {"id": "lab/data", "task_id": task, "revision": "0f" * 20}
    assert entry.get("source", {}).get("url") == url
    assert "verifyToken" not in entry
    (read,) = parse_eval_result_entries([entry])
    assert (read.task_id, read.value) == (task, float(result.headline().value))


def test_eval_results_of_a_receipt_say_what_was_released() -> None:
    signed = receipt()
    (entry,) = yaml.safe_load(eval_results(of_receipt(signed), dataset="lab/data"))
    assert (entry["value"], entry["date"]) == (0.47, "2026-11-22T05:00:00Z")
    assert entry["notes"] == (
        "Hit rate, macro average; Hit rate as a fraction from 0 to 1; 95% interval 0.42 to 0.52; n 5 findings; "
        f"CheXlocalize 1.0.0, split holdout, public part; {SIGNATURE}; receipt {signed['hash']}"
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dataset": "data"}, "`dataset` must be 'organization/name'"),
        ({"dataset": "lab/data", "revision": "main"}, "`revision` must be a commit"),
        (
            {"dataset": "lab/data", "metric": "auroc"},
            "`metric` must be a metric with a score for macro: point_hit.*, got auroc",
        ),
        (
            {"dataset": "lab/data", "metric": "grid_chance"},
            "`metric` must have a task in eval.yaml: point_hit, grid_hit, mask_iou, mask_iou_all, got grid_chance",
        ),
    ],
)
def test_eval_results_refuse(options: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        eval_results(of_receipt(receipt(figure(), figure(metric="grid_chance"))), **options)


PART = "1 of 10 findings, 40 of 90 studies (ids 0123abcd)"
PARTIAL: dict[str, Any] = SCORE | {
    "protocol": SCORE["protocol"] | {"part": PART},
    "estimates": [
        one | {"signature": one["signature"].replace("|v:1", f"|part:{PART}|v:1")} for one in SCORE["estimates"]
    ],
}


def test_scores_of_a_part_say_so_and_are_no_task_of_the_hub() -> None:
    signed = receipt(figure(signature=SIGNATURE.replace("|v:1", f"|part:{PART}|v:1")))
    for result in (of_score(PARTIAL, "Model A"), of_receipt(signed)):
        assert result.place.endswith(f", {PART}")
        for write in (markdown_table, latex_table):
            assert "1 of 10 findings, 40 of 90 studies" in write(result)
        (row,) = (line for line in claim_table(Recorded(result)).splitlines() if line.startswith("| 10 |"))
        assert "1 of 10 findings" in row
        with pytest.raises(ValueError, match="must be of a whole split, which is the task"):
            eval_results(result, dataset="lab/data")
    assert [one.asked for one in BOTH] == [None, None]


def test_two_metrics_of_one_split_have_a_task_each_and_it_is_in_eval_yaml() -> None:
    benchmark = BENCHMARKS["chexlocalize"]
    inputs = Config("holdout_inputs", {"holdout": (1, 1)}, KINDS["localization"].table.features(benchmark))
    tasks = yaml.safe_load(render_eval_yaml(benchmark, [inputs], version="1.0.0"))["tasks"]
    result = of_receipt(receipt(figure(), figure(metric="grid_hit", value="0.3")))
    entries = [
        yaml.safe_load(eval_results(result, dataset="lab/data", metric=metric))[0]
        for metric in ("point_hit", "grid_hit")
    ]
    assert [entry["dataset"]["task_id"] for entry in entries] == [
        "chexlocalize_holdout_point_hit",
        "chexlocalize_holdout_grid_hit",
    ]
    assert {entry["dataset"]["task_id"] for entry in entries} < {task["id"] for task in tasks}


def test_a_figure_is_named_by_title_too() -> None:
    assert BOTH[0].headline("hit RATE") == BOTH[0].headline("point_hit")


def test_markdown_row() -> None:
    signed = receipt(figure(value="0.5", low="0.40", high="0.65"))
    lines = markdown_table(of_receipt(signed)).splitlines()
    assert lines[:3] == [
        "| Model | Hit rate, macro average (95% CI)<sup>a</sup> | n |",
        "| --- | --- | --- |",
        "| Model A | 0.50 (0.40 to 0.65) | 5 findings |",
    ]
    assert f"Signature `{SIGNATURE}`. Receipt (SHA-256) `{signed['hash']}`." in lines[4]


def test_a_score_document_is_rounded_to_three_decimals_in_a_row() -> None:
    assert "| Model A | 0.612 (0.500 to 0.710) | 11 findings |" in markdown_table(of_score(SCORE, "Model A"))
    assert r"Model A & $0.612$ ($0.500$ to $0.710$) & 11 findings \\" in latex_table(of_score(SCORE, "Model A"))


def test_names_in_markdown_are_text() -> None:
    rendered = MarkdownIt("gfm-like").render(markdown_table(of_receipt(receipt(model=HOSTILE))))
    printed = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<td>{printed}</td>" in rendered


def test_names_in_latex_are_text() -> None:
    row = latex_table(of_receipt(receipt(model=HOSTILE))).splitlines()[4]
    assert row.split(" & $0.47$ ")[0] == (
        r"A\textbar{}B \textless{}img src=x\textgreater{} [l](http://e.org) *b* 50\% of\_\{x\} "
        r"\textbackslash{}input\{y\} \$z\$ \textasciitilde{} \textasciicircum{} \#1 \& "
        r"\textasciigrave{}c\textasciigrave{}"
    )


def test_latex_names_the_receipt() -> None:
    signed = receipt()
    table = latex_table(of_receipt(signed))
    assert signed["hash"] in table.replace(r"\allowbreak ", "")
    assert table.count("&") == 4, "two in the head, two in the row"


def test_figures_of_another_submission_are_said_to_be() -> None:
    held = of_receipt(receipt(shown_of="ab" * 16))
    caveat = f"those of submission {'ab' * 16}"
    (entry,) = yaml.safe_load(eval_results(held, dataset="lab/data"))
    for text in (entry["notes"], markdown_table(held), latex_table(held)):
        assert caveat in text


@pytest.mark.parametrize(
    ("document", "key", "named"),
    [
        (
            receipt() | {"signature": receipt(key=STRANGER)["signature"]},
            None,
            "signature of receipt 1 was not made with the key",
        ),
        (receipt(), public(STRANGER), "neither the trusted key"),
        (receipt() | {"hash": "0" * 64}, None, "was changed"),
        (make(released={"figures": "none"}), None, "`released.figures` of the receipt must be a list"),
        (receipt(figure(value="NaN")), None, "`released.figures` of the receipt must be a list"),
        (receipt(figure(value="1e999999999")), None, "`released.figures` of the receipt must be a list"),
        (receipt(figure(low="-")), None, "`released.figures` of the receipt must be a list"),
    ],
)
def test_a_receipt_that_does_not_hold_is_refused(
    tmp_path: Path, document: dict[str, Any], key: str | None, named: str
) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ReceiptError, match=named):
        read_result(path, trusted_key=key)


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        ("{", {}, "must be JSON in UTF-8"),
        ("[]", {}, "must hold one JSON object, got list"),
        ("{}", {}, "must be a receipt, or a document of `reveal-bench score --json`"),
        ('{"receipt": 1, "receipt": 2}', {}, "the key 'receipt' is repeated"),
        (json.dumps(SCORE | {"schema": 2}), {}, "`schema` of a score document must be 1, got 2"),
        (json.dumps(SCORE | {"protocol": None}), {}, "must have the fields of `score --json`"),
        (json.dumps(SCORE | {"estimates": [figure(value=1e300)]}), {}, "must have the fields of `score --json`"),
        (json.dumps(SCORE), {"trusted_key": "k"}, "which is not signed"),
        (json.dumps(receipt()), {"model": "Another"}, "which states the model"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, options: dict[str, str], named: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=named):
        read_result(path, **options)


def test_a_trusted_receipt_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt()))
    result = read_result(path, trusted_key=public(KEY))
    assert [one.value for one in result.figures] == [Decimal("0.47"), Decimal("0.5")]
