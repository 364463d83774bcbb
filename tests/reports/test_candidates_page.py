"""The selection page in a browser: choices and corrections end up in the file that `build` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reveal_bench.reports.candidates_page import selection_page
from reveal_bench.sources.rexecution_files import parse_tasks
from reveal_bench.sources.source import Problem
from tests.curation.candidates_model import REPORTS, candidate_rows
from tests.leaderboard.browser.browsing import faults, watched_page


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_what_is_selected_is_saved(browser: Any, width: int, scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "candidates.html"
    rows = candidate_rows()
    path.write_text(selection_page(rows, REPORTS | {"501": "</script><b>Small effusion."}), encoding="utf-8")
    with watched_page(browser, path.as_uri(), width=width, scheme=scheme) as page:
        page.goto(path.as_uri())
        page.check("[id='501-1']")
        page.fill("[data-id='501-1'] textarea", 'Compare, with "care", both.')
        page.fill("[data-id='501-1'] [data-column=prior_study_id]", "500")
        page.fill("[data-id='501-1'] [data-column=clarity]", "5")
        page.keyboard.press("Tab")
        page.wait_for_timeout(1000)  # a browser stores what a page keeps a moment later
        page.reload()  # the choices are kept
        page.click("#breakdown summary")
        assert page.inner_text("#chosen") == "1 of 2 studies have a task"
        assert page.inner_text("[data-id='501-1'] .total") == "sum 17"  # 4 + 4 + 4 + 5
        assert faults(page) == []
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / "tasks.csv")
    problems: list[Problem] = []
    (task,) = parse_tasks(tmp_path / "tasks.csv", problems, [])
    assert not problems
    assert (task.task_id, task.prompt, task.prior_study_id) == ("501-1", 'Compare, with "care", both.', "500")
    assert task.question_scores is not None
    assert task.question_scores["clarity"] == 5
