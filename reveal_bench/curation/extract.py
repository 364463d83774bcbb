"""The first step of a curation: suggest labels from reports, or take labels that another system made.

Every report has one row in ``suggestions.parquet``, in the order of the input table. If the engine could not read a
report, the report's row has no labels, and ``quarantine.jsonl`` has the reason and the engine's raw output. Quarantined
studies are never sampled. To include such a study, read its report and put its labels into a table of ready labels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reveal_bench.curation.folder import CurationError, CurationFolder, Progress, StepRecord
from reveal_bench.curation.report_tables import (
    GIVEN,
    Quarantined,
    ReportColumns,
    ReportEngine,
    StudyReport,
    SuggestionColumns,
    read_reports,
    read_suggestions,
    texts_digest,
)
from reveal_bench.curation.tables import Suggestion, in_order, label_counts, tally, write_table

SUGGESTIONS_NAME, QUARANTINE_NAME = "suggestions.parquet", "quarantine.jsonl"


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of reports: its file, its columns, and the sheet to read if an xlsx file has several."""

    path: Path
    columns: ReportColumns
    sheet: str | None = None


@dataclass(frozen=True, slots=True)
class SuggestionTable:
    """A table of ready labels: its file, its columns, and the sheet to read if an xlsx file has several."""

    path: Path
    columns: SuggestionColumns
    sheet: str | None = None


def extract(
    folder: CurationFolder,
    source: ReportTable | SuggestionTable,
    *,
    engine: ReportEngine | None = None,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Suggest labels for every study of a table.

    Writes ``suggestions.parquet`` (:class:`~reveal_bench.curation.tables.Suggestion`) and ``quarantine.jsonl``.

    Parameters
    ----------
    engine : reads the reports; by default :class:`reveal_bench.curation.rules.Rules`. Ready labels need no engine
    redo : repeat the step even if it was done with other inputs or settings
    progress : called with (reports done, all reports)

    Returns
    -------
    StepRecord
        Counts: studies, patients, ok, quarantined; `by_n_labels` and `by_label` of the studies that are ok; and the
        engine's own counts, if it has any.

    Raises
    ------
    BuildError
        If a row of the table has a problem; the error lists the problems of all rows.
    CurationError
        If an engine is given for ready labels, the engine skips a report or answers one twice, or the step was done
        with other inputs or settings and `redo` is False.
    """
    ready, reports, chosen = _inputs(source, engine)
    settings = {"source": _settings(source), "engine": GIVEN if chosen is None else chosen.signature}
    if chosen is not None:
        settings["engine_settings"] = chosen.settings()
        settings["texts"] = texts_digest(reports)

    def work(scratch: Path) -> dict[str, Any]:
        answers: list[Suggestion | Quarantined] = [*ready]
        if chosen is not None:
            (scratch / "engine").mkdir(exist_ok=True)
            answers = answers_in_order(reports, chosen, scratch / "engine", progress)
        write_table(scratch / SUGGESTIONS_NAME, [_row(answer) for answer in answers], Suggestion)
        set_aside = [answer for answer in answers if isinstance(answer, Quarantined)]
        lines = [json.dumps(asdict(answer), ensure_ascii=False) + "\n" for answer in set_aside]
        (scratch / QUARANTINE_NAME).write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
        return _counts(answers, chosen)

    return folder.run(
        "extract",
        settings,
        work,
        files={"table": source.path},
        writes=(SUGGESTIONS_NAME, QUARANTINE_NAME),
        redo=redo,
    )


def answers_in_order(
    reports: Sequence[StudyReport], engine: ReportEngine, scratch: Path, progress: Progress | None = None
) -> list[Suggestion | Quarantined]:
    """Return one answer per report, in the order of the reports, whatever the engine's order.

    Raises
    ------
    CurationError
        If the engine skips a report, answers a report twice, answers an unrequested report, or gives labels that are
        not in the order of REVEAL_LABELS.
    """
    asked = {report.study_id: report for report in reports}
    answers: dict[str, Suggestion | Quarantined] = {}
    for answer in engine.run(iter(reports), scratch, progress):
        report = asked.get(answer.study_id)
        if report is None or report.patient_id != answer.patient_id or answer.study_id in answers:
            which = f"study {answer.study_id!r} of patient {answer.patient_id!r}"
            raise CurationError(
                f"{engine.signature} must answer every report once, got an unrequested or second answer to {which}"
            )
        if isinstance(answer, Suggestion) and (answer.status != "ok" or in_order(answer.labels) != answer.labels):
            got = f"{answer.status!r} with {answer.labels}"
            raise CurationError(
                f'{engine.signature} must give the status "ok" and labels in the order of REVEAL_LABELS, got {got}'
            )
        answers[answer.study_id] = answer
    left_out = [study for study in asked if study not in answers]
    if left_out:
        raise CurationError(f"{engine.signature} must answer every report, got no answer to {left_out[0]!r}")
    return [answers[report.study_id] for report in reports]


def _inputs(
    source: ReportTable | SuggestionTable, engine: ReportEngine | None
) -> tuple[list[Suggestion], list[StudyReport], ReportEngine | None]:
    """Return the ready labels, the reports, and the engine that reads the reports."""
    if isinstance(source, SuggestionTable):
        if engine is not None:
            raise CurationError(f"labels from a table need no engine, got {engine.signature}")
        return read_suggestions(source.path, source.columns, sheet=source.sheet), [], None
    from reveal_bench.curation.rules import Rules

    return [], read_reports(source.path, source.columns, sheet=source.sheet), engine or Rules()


def _settings(source: ReportTable | SuggestionTable) -> dict[str, Any]:
    return {"columns": asdict(source.columns), "sheet": source.sheet}


def _row(answer: Suggestion | Quarantined) -> Suggestion:
    if isinstance(answer, Quarantined):
        return Suggestion(answer.study_id, answer.patient_id, (), (), "quarantined", answer.engine)
    return answer


def _counts(answers: Sequence[Suggestion | Quarantined], engine: ReportEngine | None) -> dict[str, Any]:
    ok = [answer for answer in answers if isinstance(answer, Suggestion)]
    counts: dict[str, Any] = {
        "studies": len(answers),
        "patients": len({answer.patient_id for answer in answers}),
        "ok": len(ok),
        "quarantined": len(answers) - len(ok),
        "by_n_labels": tally(len(answer.labels) for answer in ok),
        "by_label": label_counts(answer.labels for answer in ok),
    }
    own = getattr(engine, "counts", None)
    return counts if own is None else {**counts, "engine": own()}
