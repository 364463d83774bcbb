"""What is counted over the rows of a benchmark of tasks, and over readers' ratings of answers to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from reveal_bench.kinds.rows import Row
from reveal_bench.kinds.tally import Tally, markdown_table, mean_score
from reveal_bench.kinds.tasks.records import CATEGORIES, QUESTION_SCORES
from reveal_bench.metrics.ordinal import CRITERIA

__all__ = ["TasksTally"]


@dataclass
class TasksTally(Tally):
    """A row is a task; `positives` are per category.

    Attributes
    ----------
    temporal, with_boxes, with_answer, risky : tasks that need a prior study, ask for boxes, have a reference answer,
        were judged risky
    question_scores : per name, scores -> tasks
    ratings : per (model, criterion), scores given -> how often; `raters` are the readers
    """

    items: ClassVar[str] = "tasks"

    temporal: int = 0
    with_boxes: int = 0
    with_answer: int = 0
    risky: int = 0
    question_scores: dict[str, Counter[int]] = field(
        default_factory=lambda: {name: Counter() for name in QUESTION_SCORES}
    )
    ratings: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    raters: set[str] = field(default_factory=set)

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one task."""
        super().add(row, asked)
        self.positives[row["category"]] += 1
        self.temporal += bool(row["temporal"])
        self.with_boxes += bool(row["requires_boxes"])
        self.with_answer += row["reference_answer"] is not None
        self.risky += bool(row["risk_flag"])
        for name, counts in self.question_scores.items():
            score = (row["question_scores"] or {}).get(name)
            if score is not None:
                counts[score] += 1

    def add_extra(self, config: str, row: Row) -> None:
        """Count one row of an extra table; of ratings also their scores."""
        super().add_extra(config, row)
        if config != "ratings":
            return
        self.raters.add(row["reader"])
        for name in CRITERIA:
            scores = self.ratings.setdefault((row["model"], name), Counter())
            if row[name] is not None:
                scores[row[name]] += 1

    def missing(self, findings: Sequence[str]) -> str:
        """Tasks without an answer."""
        return f"{self.n_rows - self.with_answer:,} of {self.n_rows:,} tasks have no reference answer"

    def categories(self) -> dict[str, object]:
        """Tasks per category, what they need, and mean scores of the questions."""
        counts: dict[str, object] = {
            name.replace("_", " "): self.positives[code] for code, name in enumerate(CATEGORIES)
        }
        counts |= {
            "needs the earlier study": self.temporal,
            "must localize": self.with_boxes,
            "has a reference answer": self.with_answer,
            "judged risky": self.risky,
        }
        means = {
            f"mean {name.replace('_', ' ')}": mean_score(scores) if scores else None
            for name, scores in self.question_scores.items()
        }
        return counts | means

    def ratings_text(self) -> str:
        """How many ratings, and the mean per model and criterion."""
        if not self.ratings:
            return ""
        models = sorted({model for model, _ in self.ratings})
        rows = [[model, *(mean_score(self.ratings[model, name]) for name in CRITERIA)] for model in models]
        table = markdown_table(["model", *(name.replace("_", " ") for name in CRITERIA)], rows)
        return f"{self.extras['ratings']:,} ratings by {len(self.raters)} readers; means of 1 to 5:\n\n{table}"

    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return [*row["image_facts"], *row["prior_image_facts"]]
