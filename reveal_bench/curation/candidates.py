"""Let a model draft candidate tasks for an open-task benchmark from reports, and score and tag these drafts.

Each study needs two prompts: the first asks for drafts, the second for scores from 1 to 5, a risk flag and tags of each
draft. Source: paper 001, section 3.1; the wording of the prompts is this project's. A radiologist selects among the
candidates; no draft becomes a task otherwise.

Conventions
-----------
``candidates.csv`` has the format of the task file of :mod:`reveal_bench.sources.rexecution_files`. The candidates of a
study are in adjacent rows, with the highest sum of scores first; ties keep the order of drafting. The model's output is
checked against its schema and never repaired; studies without a readable answer are in ``candidates-quarantine.jsonl``.
A task that needs an earlier study has Yes in `temporal` but no `prior_study_id`; the radiologist who selects the task
enters that study.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.curation.extract import ReportTable
from reveal_bench.curation.folder import CurationFolder, Progress, StepRecord
from reveal_bench.curation.model_engine import NoAnswer, RetryingClient, as_one_text
from reveal_bench.curation.report_prompts import (
    DATA_ALONE,
    ONE_OBJECT,
    Prompt,
    UnreadableAnswerError,
    as_json,
    line_of,
    object_schema,
    parse_object,
    plain,
)
from reveal_bench.curation.report_tables import Quarantined, StudyReport, read_reports, texts_digest
from reveal_bench.kinds.tasks.records import CATEGORIES, QUESTION_SCORES, TAGS
from reveal_bench.models.model_client import Dialogue, ModelClient, ModelRequest
from reveal_bench.tables import read_table

CANDIDATES_NAME, QUARANTINE_NAME = "candidates.csv", "candidates-quarantine.jsonl"
COLUMNS = (
    "task_id", "study_id", "prior_study_id", "subject_id", "prompt", "category", "indication", "temporal",
    *(f"tag_{name}" for name in TAGS), *QUESTION_SCORES, "risk_flag", "total", "requires_boxes",
)  # fmt: skip

MOST_PROMPT_CHARACTERS = 1000
MOST_TAG_CHARACTERS = 60

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_SCORE = {"type": "integer", "enum": [1, 2, 3, 4, 5]}

DRAFTS_SCHEMA = object_schema(
    indication={"type": ["string", "null"]},
    tasks={
        "type": "array",
        "items": object_schema(
            category={"type": "string", "enum": list(CATEGORIES)}, prompt=_TEXT, needs_earlier_study=_FLAG
        ),
    },
)
ASSESSMENTS_SCHEMA = object_schema(
    assessments={
        "type": "array",
        "items": object_schema(
            **dict.fromkeys(QUESTION_SCORES, _SCORE),
            risk_flag=_FLAG,
            **{name: {"type": "array", "items": _TEXT} for name in TAGS},
        ),
    }
)

_DRAFT_TASK = f"""The user sends the report of a chest radiograph. Write %d tasks that a radiologist at
work might give an assistant that sees the images of this study and not the report. Use at least two of these
categories, and all three where the report allows it:
- "broad_abnormality": look for everything of one kind and describe it;
- "diagnosis_support": gather the signs for or against a diagnosis, or weigh several diagnoses;
- "measurement_temporal": measure something, or compare it with an earlier study.

- Each task fits what the report asks or tells of this patient, and asks for reasoning about several signs.
- A task gives nothing away of what the report found, and can be done without it.
- "needs_earlier_study" is true where the task compares with an earlier study.
- "indication" is the reason for the study, word for word as the report has it; null if it gives none.

{ONE_OBJECT}
{{"indication": "Cough and fever.", "tasks": [{{"category": "broad_abnormality", "prompt": "Describe every line and \
tube, and say whether each ends where it should.", "needs_earlier_study": false}}]}}
{DATA_ALONE}"""

_ASSESS_TASK = f"""The user sends a JSON object with tasks that might be given to an assistant that reads chest
radiographs, and the reason for the study. Assess every task by itself, in the order of the list. Whole numbers from 1
(not at all) to 5 (fully):
- "clinical_relevance": a radiologist would ask this of this patient, and the answer would matter;
- "answerability": the chest radiographs alone are enough to answer it;
- "complexity": it needs reasoning about several signs and not the recognition of one;
- "clarity": it is worded plainly and leaves no doubt what is asked.
"risk_flag" is true where the task invites an answer that could harm a patient, such as a decision on treatment.
The other keys are lists of short tags, empty where none fits: "anatomical_region" and "pathology_type" of the task,
"imaging_finding" that it is about, "laterality", "diagnostic_intent" such as detection or differential diagnosis,
"temporal_context" such as current study or follow-up, "question_type" such as open-ended, and "subtype".

{ONE_OBJECT}
{{"assessments": [{{"clinical_relevance": 4, "answerability": 5, "complexity": 3, "clarity": 5, "risk_flag": false, \
"anatomical_region": ["pleura"], "pathology_type": ["effusion"], "imaging_finding": ["blunted angle"], \
"laterality": [], \
"diagnostic_intent": ["detection"], "temporal_context": ["current study"], "question_type": ["open-ended"], \
"subtype": []}}]}}
{DATA_ALONE}"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafted task; `scores` and `tags` have the keys QUESTION_SCORES and TAGS."""

    category: str
    prompt: str
    needs_earlier_study: bool
    scores: Mapping[str, int]
    risk_flag: bool
    tags: Mapping[str, tuple[str, ...]]

    @property
    def total(self) -> int:
        """The sum of the four scores, 4 to 20."""
        return sum(self.scores.values())


@dataclass(frozen=True, slots=True)
class Drafted:
    """The candidates of a study, best first."""

    study_id: str
    patient_id: str
    indication: str | None
    candidates: tuple[Candidate, ...]


class TaskDrafter(RetryingClient):
    """Drafts and assesses `n` tasks per report with a model, in two prompts."""

    prompts: ClassVar[int] = 1

    def __init__(self, client: ModelClient, n: int = 5) -> None:
        if n < 1:
            raise ArgumentError("n", "must be at least 1", n)
        super().__init__(client, f"candidates:{n}")
        self.n = n

    def run(self, reports: Sequence[StudyReport], progress: Progress | None = None) -> Iterator[Drafted | Quarantined]:
        """Yield one result per report, in order of completion.

        Raises
        ------
        RunStoppedError
            If the endpoint does not answer; earlier completions are kept.
        """
        return self.run_dialogues([self._dialogue(one) for one in reports], progress)

    def _dialogue(self, report: StudyReport) -> Dialogue[Drafted | Quarantined]:
        replies: list[str] = []
        try:
            indication, drafts = yield from self.read(drafts_prompt(report.text, self.n), replies)
            candidates = yield from self.read(assessments_prompt(indication, drafts), replies)
        except NoAnswer as error:
            return Quarantined(report.study_id, report.patient_id, str(error), self.signature, as_one_text(replies))
        best_first = sorted(candidates, key=lambda one: -one.total)
        return Drafted(report.study_id, report.patient_id, indication, tuple(best_first))


def drafts_prompt(report: str, n: int) -> Prompt[tuple[str | None, list[dict[str, Any]]]]:
    """Return the prompt that asks for a report's indication and for `n` draft tasks, in the format of the schema."""

    def read(text: str) -> tuple[str | None, list[dict[str, Any]]]:
        document = parse_object(text, DRAFTS_SCHEMA)
        indication, drafts = document["indication"], document["tasks"]
        if indication is not None and plain(indication) not in plain(report):
            raise UnreadableAnswerError(
                f"indication must stand in the report word for word, got {as_json(indication[:80])}"
            )
        if len(drafts) != n:
            raise UnreadableAnswerError(f"tasks must be {n}, got {len(drafts)}")
        for i, draft in enumerate(drafts):
            draft["prompt"] = line_of(draft["prompt"], f"tasks[{i}].prompt", MOST_PROMPT_CHARACTERS)
        if len({draft["prompt"].casefold() for draft in drafts}) < n:
            raise UnreadableAnswerError("tasks must differ, got one twice")
        return plain(indication or "") or None, drafts

    return Prompt(ModelRequest((("system", _DRAFT_TASK % n), ("user", report)), "drafts", DRAFTS_SCHEMA), read)


def assessments_prompt(indication: str | None, drafts: Sequence[Mapping[str, Any]]) -> Prompt[list[Candidate]]:
    """Return the prompt that asks for scores and tags of drafts; its parser returns candidates in the same order."""
    asked = {"indication": indication, "tasks": [draft["prompt"] for draft in drafts]}
    request = ModelRequest((("system", _ASSESS_TASK), ("user", as_json(asked))), "assessments", ASSESSMENTS_SCHEMA)

    def read(text: str) -> list[Candidate]:
        assessments = parse_object(text, ASSESSMENTS_SCHEMA)["assessments"]
        if len(assessments) != len(drafts):
            raise UnreadableAnswerError(f"assessments must be {len(drafts)}, one per task, got {len(assessments)}")
        return [
            Candidate(
                **draft,
                scores={name: one[name] for name in QUESTION_SCORES},
                risk_flag=one["risk_flag"],
                tags={name: _tags(one[name], f"assessments[{i}].{name}") for name in TAGS},
            )
            for i, (draft, one) in enumerate(zip(drafts, assessments, strict=True))
        ]

    return Prompt(request, read)


def _tags(values: Sequence[str], place: str) -> tuple[str, ...]:
    """Return tags after checking that a cell can list them: " - " separates tags there, and "None" means no tag."""
    checked = tuple(line_of(value, place, MOST_TAG_CHARACTERS) for value in values)
    for value in checked:
        if re.search(r"\s[-\u2013]\s", value) or value.casefold() == "none":
            raise UnreadableAnswerError(
                f'{place} must hold tags without a dash between blanks, and not "None", got {value!r}'
            )
    return checked


# The step -------------------------------------------------------------------------------------------------------------


def draft_candidates(
    folder: CurationFolder,
    source: ReportTable,
    drafter: TaskDrafter,
    *,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Draft candidate tasks for every report of a table.

    Writes ``candidates.csv`` and ``candidates-quarantine.jsonl``.

    Returns
    -------
    StepRecord
        Counts: studies, candidates, quarantined, `by_category`, and the drafter's own counts.

    Raises
    ------
    BuildError
        If a row of the table has a problem; the error lists the problems of all rows.
    CurationError
        If the step was already done with other inputs or settings, and `redo` is False.
    RunStoppedError
        If the endpoint does not answer; earlier completions are kept.
    """
    reports = read_reports(source.path, source.columns, sheet=source.sheet)
    settings = {
        "source": {"columns": asdict(source.columns), "sheet": source.sheet},
        "drafter": drafter.settings(),
        "texts": texts_digest(reports),
    }

    def work(scratch: Path) -> dict[str, Any]:
        outcomes = {one.study_id: one for one in drafter.run(reports, progress)}
        in_order = [outcomes[report.study_id] for report in reports]
        rows = [row for one in in_order if isinstance(one, Drafted) for row in candidate_table(one)]
        with (scratch / CANDIDATES_NAME).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        lines = [json.dumps(asdict(one)) + "\n" for one in in_order if isinstance(one, Quarantined)]
        (scratch / QUARANTINE_NAME).write_text("".join(lines), encoding="utf-8")
        return {
            "studies": len(reports),
            "candidates": len(rows),
            "quarantined": len(lines),
            "by_category": {name: sum(row["category"] == name for row in rows) for name in CATEGORIES},
            "engine": drafter.counts(),
        }

    writes = (CANDIDATES_NAME, QUARANTINE_NAME)
    return folder.run("candidates", settings, work, files={"table": source.path}, writes=writes, redo=redo)


def candidate_table(drafted: Drafted) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``candidates.csv``, best first."""
    for number, one in enumerate(drafted.candidates, start=1):
        yield {
            "task_id": f"{drafted.study_id}-{number}",
            "study_id": drafted.study_id,
            "prior_study_id": "",
            "subject_id": drafted.patient_id,
            "prompt": one.prompt,
            "category": one.category,
            "indication": drafted.indication or "",
            "temporal": "Yes" if one.needs_earlier_study else "No",
            **{f"tag_{name}": " - ".join(one.tags[name]) or "None" for name in TAGS},
            **one.scores,
            "risk_flag": "Yes" if one.risk_flag else "No",
            "total": one.total,
            "requires_boxes": "No",
        }


def read_candidates(folder: CurationFolder) -> list[dict[str, str]]:
    """Return the rows of ``candidates.csv`` as dicts with the keys :data:`COLUMNS`; the step must have been done."""
    folder.need("candidates")
    return [dict(row) for row in read_table(folder.path(CANDIDATES_NAME), verbatim=True).rows]
