"""A simulated model that drafts two tasks per report and scores later tasks higher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reveal_bench.curation.candidates import Drafted, assessments_prompt, candidate_table, drafts_prompt
from reveal_bench.kinds.tasks.records import QUESTION_SCORES, TAGS

REPORTS = {"501": "INDICATION: Cough. FINDINGS: Small effusion.", "502": "FINDINGS: Normal heart."}


def drafts(report: str) -> dict[str, Any]:
    indication = "Cough." if "INDICATION" in report else None
    subject = "effusion" if indication else "heart"
    return {
        "indication": indication,
        "tasks": [
            {"category": "broad_abnormality", "prompt": f"Describe the {subject}.", "needs_earlier_study": False},
            {
                "category": "measurement_temporal",
                "prompt": f"Compare the {subject}, please.",
                "needs_earlier_study": True,
            },
        ],
    }


def assessments(text: str) -> dict[str, Any]:
    return {
        "assessments": [
            {
                **dict.fromkeys(QUESTION_SCORES, 3 + i),
                "risk_flag": i == 1,
                **{name: ["pleura", "follow-up"] if name == "subtype" else [] for name in TAGS},
            }
            for i, _ in enumerate(json.loads(text)["tasks"])
        ]
    }


OTHERS = {"drafts": drafts, "assessments": assessments}


def write_reports(path: Path) -> Path:
    rows = "".join(f"{study},9{study},{text}\n" for study, text in REPORTS.items())
    path.write_text("study,patient,report\n" + rows, encoding="utf-8")
    return path


def candidate_rows() -> list[dict[str, str]]:
    """Rows of ``candidates.csv`` as the model's answers give them."""
    rows = []
    for study, report in REPORTS.items():
        indication, checked = drafts_prompt(report, 2).read(json.dumps(drafts(report)))
        text = json.dumps({"tasks": checked})
        candidates = assessments_prompt(indication, checked).read(json.dumps(assessments(text)))
        drafted = Drafted(study, f"9{study}", indication, tuple(candidates[::-1]))
        rows += [{name: str(value) for name, value in row.items()} for row in candidate_table(drafted)]
    return rows
