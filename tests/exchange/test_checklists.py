"""Facts for CLAIM 2024 and TRIPOD-LLM: every item once, and nothing said that is not recorded."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reveal_bench.exchange.checklists import CLAIM, TRIPOD_LLM, Recorded, claim_table, tripod_llm_table
from reveal_bench.exchange.facts import of_receipt, of_score
from reveal_bench.kinds.folder import FolderInfo
from tests.exchange.test_result_forms import SCORE, receipt

FOLDER = FolderInfo(
    benchmark="reveal-cxr", version="1.2.0", synthetic=True, asks="all", grid=8, findings=("Edema",),
    splits={"released": {"n_studies": 100, "n_patients": 95, "references": "public"}},
)  # fmt: skip
RUN: dict[str, Any] = {
    "benchmark": "reveal-cxr", "benchmark_version": "1.2.0", "split": "released", "model": "Model|A", "epochs": 2,
    "settings": {"style": "zero-shot", "shots_split": None}, "parameters": {"temperature": 0},
    "harness": {"inspect-ai": "0.3.285"}, "prices": None,
}  # fmt: skip
USAGE = {"served_models": ["model-a-2026"], "tokens_in": 10, "tokens_out": 4, "cost": "0.05"}


def rows(table: str) -> dict[str, str]:
    """Return item -> recorded fact, as Markdown."""
    cells = re.findall(r"^\| (\w+) \| [^|]+ \| (.+) \|$", table, re.MULTILINE)
    facts = {item: fact for item, fact in cells if item != "item"}
    assert len(facts) == len(cells) - 1, "an item twice"
    return facts


def test_items_have_the_numbers_of_the_checklists() -> None:
    assert list(CLAIM) == [str(number) for number in range(1, 45)]
    letters = {"3": "ab", "5": "abcde", "6": "abcde", "7": "abcde", "8": "abc", "9": "ab", "14": "abcdef", "16": "abcd"}
    letters["19"] = "abcdefg"
    expected = [f"{n}{letter}" for n in range(1, 20) for letter in letters.get(str(n), [""])]
    assert (list(TRIPOD_LLM), len(TRIPOD_LLM)) == (expected, 49)


def test_a_receipt_alone_fills_little() -> None:
    result = of_receipt(receipt())
    claim, tripod = claim_table(Recorded(result)), tripod_llm_table(Recorded(result))
    assert rows(claim).keys() == CLAIM.keys()
    assert rows(tripod).keys() == TRIPOD_LLM.keys()
    assert rows(claim)["37"] == "macro averages: Hit rate 0.47 (0.42 to 0.52)"
    assert rows(claim)["35"] == rows(claim)["42"] == rows(tripod)["6c"] == rows(tripod)["12"] == "not recorded"
    for table in (claim, tripod):
        recorded = sum(fact != "not recorded" for fact in rows(table).values())
        assert f"{recorded} of {len(rows(table))} items have a recorded fact." in table
        assert "does not state whether the checklist is met" in table
        assert result.receipt is not None
        assert result.receipt.hash in table


def test_everything_that_is_recorded() -> None:
    recorded = Recorded(of_score(SCORE, "Model A"), FOLDER, RUN, USAGE)
    claim, tripod = rows(claim_table(recorded)), rows(tripod_llm_table(recorded))
    assert claim["35"] == "studies 100, patients 95, predictions 90, missing 10"
    assert claim["12"] == "a question without an answer counts as a miss"
    assert claim["36"] == "dataset card (README.md of reveal-cxr 1.2.0), «Demographics»"
    assert claim["23"] == "reveal-bench 0.1.0, inspect-ai 0.3.285"
    assert claim["42"].startswith("n\\_resamples 500; seed 3")
    assert tripod["6a"] == "Model\\|A, as stated; the service answered as model-a-2026"
    assert tripod["6c"] == 'style "zero-shot", temperature 0; epochs 2'
    assert tripod["12"] == "tokens in 10, out 4; cost 0.05"
    assert "0.612 (0.500 to 0.710)" in tripod["17"]


@pytest.mark.parametrize(
    ("folder", "run", "named"),
    [
        (FolderInfo(**{**vars(FOLDER), "version": "1.1.0"}), None, "`folder` must be of reveal-cxr 1.2.0"),
        (
            None,
            RUN | {"split": "holdout"},
            "`run` must be of reveal-cxr 1.2.0 released, like the result, got .* holdout",
        ),
    ],
)
def test_facts_of_something_else_are_refused(folder: FolderInfo | None, run: dict[str, Any] | None, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Recorded(of_score(SCORE), folder, run)
