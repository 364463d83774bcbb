"""Studies of a findings benchmark as cases that are shown: their labels, and which of them systems called."""

from __future__ import annotations

from reveal_bench.kinds.cases import Case, CaseAnswer, films_of_study
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows

__all__ = ["answers_of_studies", "case_of_study"]


def case_of_study(record: StudyRecord) -> Case:
    """A study with its labels."""
    agreement = (("Agreement", record.agreement.replace("_", " ")),) if record.agreement else ()
    told = (("Reference labels", ", ".join(record.labels) or "none"), *agreement)
    return Case(record.study_id, films_of_study(record.images), record.labels, {}, told)


def answers_of_studies(rows: StudyRows) -> dict[str, list[CaseAnswer]]:
    """What a system called, by study, label by label."""
    answers: dict[str, list[CaseAnswer]] = {}
    for i, study in enumerate(rows.studies):
        found = answers.setdefault(study.study_id, [])
        for j, label in enumerate(rows.labels):
            is_present, is_called = bool(rows.present[i, j]), bool(rows.predicted[i, j])
            words = "no answer" if not rows.has_prediction[i] else "called" if is_called else "not called"
            if rows.probabilities is not None and rows.has_prediction[i]:
                words += f", probability {rows.probabilities[i, j]:.2f}"
            found.append(CaseAnswer(label, is_present == is_called, words))
    return answers
