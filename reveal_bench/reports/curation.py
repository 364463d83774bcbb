"""The last step: the tables and figures of paper 004 for this curation, from whatever is done.

``report/index.html`` is for the maintainers: it holds label counts of the holdout. ``report/public.html`` may be
published, see :mod:`reveal_bench.reports.curation_public`. Beside them lie the figures of the first as SVG and its
numbers as CSV. Nothing is built on a report: it is made anew whenever anything has changed, and figures of a report
before that have no place in it any more are removed. A ``ratings.csv`` in the curation folder adds the table of paper
001.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from reveal_bench.curation.folder import CurationFolder, Progress, StepRecord
from reveal_bench.files import file_sha256
from reveal_bench.reports.curation_agreement import draw_agreement, draw_rubric
from reveal_bench.reports.curation_data import RATINGS_NAME, READS, Curated, read_curated
from reveal_bench.reports.curation_halves import draw_balance, draw_demographics, draw_findings
from reveal_bench.reports.curation_public import public_page
from reveal_bench.reports.curation_steps import draw_extraction, draw_flow_section, draw_refresh, draw_steps
from reveal_bench.reports.page import Note, Page, Section, page_files
from reveal_bench.reports.style import check_extra
from reveal_bench.sources.rexecution_files import read_ratings_table

PLACE = "report"
PUBLIC_NAME = "public.html"


def report(folder: CurationFolder, *, redo: bool = False, progress: Progress | None = None) -> StepRecord:
    """Write the report, see the module.

    Parameters
    ----------
    redo : write it again though it is up to date; otherwise it is made anew by itself
    progress : called once, at the end

    Returns
    -------
    StepRecord
        Its counts: `done`, the steps that the report is of, and `files`, how many it has.

    Raises
    ------
    BuildError
        With everything that is wrong with ``ratings.csv``.
    ImportError
        Without the extra [report].
    """
    check_extra()
    curated = read_curated(folder)
    done = [step for step, state in curated.states.items() if state.status == "done" and step != "report"]
    ratings = folder.path(RATINGS_NAME)
    files = make_report(curated, ratings if ratings.is_file() else None)

    def work(scratch: Path) -> Mapping[str, Any]:
        (scratch / PLACE).mkdir(exist_ok=True)
        for name, content in files.items():
            (scratch / PLACE / name).write_text(content, encoding="utf-8", newline="")
        if progress is not None:
            progress(len(files), len(files))
        return {"done": done, "files": len(files)}

    before = folder.record("report")
    settings = {"content": _digest(files)}
    reads = sorted({name for step in done for name in READS[step]})
    outside = {"ratings": ratings} if ratings.is_file() else {}
    record = folder.run(
        "report",
        settings,
        work,
        reads=reads,
        files=outside,
        writes=[f"{PLACE}/{name}" for name in files],
        redo=redo or not _is_of(before, settings, {name: folder.path(name) for name in reads} | outside),
    )
    for name in set() if before is None else before.outputs.keys() - record.outputs.keys():
        folder.path(name).unlink(missing_ok=True)
    return record


def make_report(curated: Curated, ratings: Path | None = None) -> dict[str, str]:
    """Name -> content of every file of the report."""
    page = _page(curated, _sections(curated, ratings))
    files = page_files(page, "index.html", is_flat=True) | {PUBLIC_NAME: public_page(curated)}
    return {name: text if isinstance(text, str) else text.decode("utf-8") for name, text in files.items()}


def _sections(curated: Curated, ratings: Path | None) -> list[Section]:
    sections = [
        draw_steps(curated),
        draw_flow_section(curated),
        draw_extraction(curated),
        draw_agreement(curated),
        draw_demographics(curated),
        draw_balance(curated),
        draw_findings(curated),
    ]
    refreshed = draw_refresh(curated)
    sections += [] if refreshed is None else [refreshed]
    return sections if ratings is None else [*sections, draw_rubric(read_ratings_table(ratings))]


def _page(curated: Curated, sections: list[Section]) -> Page:
    notice = Note(
        "Not for publication.",
        f"This page holds counts of the labels of the holdout. What may be published is {PUBLIC_NAME}.",
        is_warning=True,
    )
    version = f" of version {curated.version}" if curated.version else ""
    lead = f"Curation report{version}, for its maintainers: the tables and figures of paper 004 (REVEAL-CXR)."
    return Page(f"How “{curated.name}” was made", lead, sections, [notice])


def _is_of(record: StepRecord | None, settings: Mapping[str, Any], inputs: Mapping[str, Path]) -> bool:
    """Whether a report was made of just these inputs."""
    if record is None or record.settings != settings:
        return False
    return record.inputs == {name: file_sha256(path) for name, path in inputs.items()}


def _digest(files: Mapping[str, str]) -> str:
    """Of what the report says: other counts, and other pages of a later version, make another report."""
    return sha256(json.dumps(sorted(files.items())).encode()).hexdigest()
