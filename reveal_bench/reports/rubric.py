"""Report on readers' ratings of answers to open tasks, like Tables 1 to 3 and Figures 3 and 5 of paper 001.

Conventions
-----------
An answer's score on a criterion is the mean over its readers. *Content* is the minimum of these means for process,
execution and synthesis (:mod:`reveal_bench.metrics.ordinal`). The page also gives the mean over readers of each
reader's minimum. As in the paper, unanswered tasks are counted but have no scores; `reveal-bench score` gives these
tasks the lowest scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.tasks.records import QUESTION_SCORES, TAGS, Rating, TaskRecord, rated_answers, rating_array
from reveal_bench.kinds.tasks.scoring import RubricRows, score_ratings
from reveal_bench.metrics.ordinal import (
    CONTENT_CRITERIA,
    CRITERIA,
    HIGHEST,
    LOWEST,
    REPORTED,
    REPORTED_OF_TEXT,
    RubricSummary,
    compare_models,
    reader_agreement,
    rubric_summary,
)
from reveal_bench.metrics.resampled import mean_of_defined
from reveal_bench.reports.figures import panels
from reveal_bench.reports.page import (
    Csv,
    Page,
    PageTable,
    Section,
    check_target,
    notices,
    printed_table,
    section,
    write_page,
)
from reveal_bench.reports.runs import Split, load_runs, open_split
from reveal_bench.reports.style import DASHED, SOFT, Illustration, number, paints, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = np.arange(LOWEST, HIGHEST + 0.5, 0.5)
"""Bins of scores in half-point steps, which means of two readers can take."""
MOST_PAIRS = 3
"""Maximum number of reader pairs shown in a figure each."""
_LARGEST = 11.0  # marker diameter in points of the most common pair of scores


def write_rubric_report(
    folder: Path,
    ratings: Sequence[Rating],
    out: Path,
    *,
    runs: Sequence[tuple[str, Path]] = (),
    split: str | None = None,
) -> list[str]:
    """Write the report's page, figures and tables into `out`.

    Parameters
    ----------
    folder : dataset folder of a benchmark whose answers readers rate
    ratings : ratings of any number of models, by any number of readers
    runs : (model name as in the ratings, run folder or prediction file); they determine which tasks are answered.
        Without runs, every rated task counts as answered
    split : split with references; by default the split of the runs, or the only one

    Returns
    -------
    Warnings, for people

    Raises
    ------
    ValueError
        If the benchmark is not rated by readers, ratings are missing, or ratings name unknown tasks or models.
    LintError
        If a prediction file has errors.
    ImportError
        Without the extra [report].
    """
    folder, out = Path(folder), Path(out)
    check_target(folder, out)
    opened = open_split(folder, runs, split)
    if opened.kind.scoring.scored_by != "readers":
        raise ArgumentError("ratings", "must be for a benchmark whose answers readers rate", opened.kind.name)
    rated = Rated(opened.records, ratings, _answered(opened, runs, ratings))
    warnings = rated.warnings()
    title = f"Answers to {opened.title} as readers rated them"
    notes = notices(synthetic=opened.info.synthetic, warnings=warnings)
    write_page(out, Page(title, opened.description, list(_sections(rated)), notes))
    return warnings


def _answered(
    split: Split, runs: Sequence[tuple[str, Path]], ratings: Sequence[Rating]
) -> dict[str, Collection[str] | None]:
    """Return model -> answered tasks; None if rated tasks count as the answered ones."""
    models = list(dict.fromkeys(rating.model for rating in ratings))
    if not models:
        raise ArgumentError("ratings", "must hold at least one rating", "none")
    if not runs:
        return dict.fromkeys(models)
    answered = {run.label: {one.task_id for one in run.predictions[0]} for run in load_runs(runs, split)}
    strange = [name for name in answered if name not in models]
    if strange:
        raise ArgumentError("runs", f"must use the model names of the ratings ({', '.join(models)})", repr(strange[0]))
    return dict(answered)


@dataclass(frozen=True)
class Rated:
    """Ratings of several models' answers to the same tasks.

    Attributes
    ----------
    answered : model -> answered tasks, None if rated tasks count as answered; ratings of other models are omitted
    """

    tasks: Sequence[TaskRecord]
    ratings: Sequence[Rating]
    answered: Mapping[str, Collection[str] | None]

    @cached_property
    def rows(self) -> dict[str, RubricRows]:
        """Tasks by model."""
        return {
            model: score_ratings(
                [one for one in self.ratings if one.model == model], self.tasks, answered=tasks, missing="leave_out"
            )
            for model, tasks in self.answered.items()
        }

    @property
    def models(self) -> list[str]:
        """Names of the models, as in the ratings."""
        return list(self.rows)

    @cached_property
    def scores(self) -> dict[str, FloatArray]:
        """Mean scores over readers by model, shape (n_tasks, 6)."""
        return {model: rows.scores[:, 1:] for model, rows in self.rows.items()}

    @cached_property
    def summaries(self) -> dict[tuple[str, str], RubricSummary]:
        """Summary of the scores by (model, criterion), without unrated criteria."""
        return {(one.model, one.criterion): one for one in rubric_summary(self.scores) if one.n}

    @property
    def criteria(self) -> list[str]:
        """Criteria with at least one score, in the order of the tables."""
        return [name for name in REPORTED if any(criterion == name for _, criterion in self.summaries)]

    def content_by_reader(self, model: str) -> float:
        """Return the mean content score if each reader's minimum is taken before the mean over readers."""
        ratings = self.rows[model].ratings[:, :, : len(CONTENT_CRITERIA)]
        per_task = mean_of_defined(ratings.min(axis=2))
        return float(mean_of_defined(per_task[None])[0])

    @cached_property
    def pairs(self) -> list[tuple[str, str, FloatArray]]:
        """Pairs of readers with their ratings (2, n_answers, 6) of the answers that both rated; pairs that share most
        answers come first.
        """
        ratings = [one for one in self.ratings if one.model in self.answered]
        of_reader = Counter(one.reader for one in ratings)
        names = sorted(of_reader, key=lambda name: (-of_reader[name], name))
        read = {name: {(one.task_id, one.model) for one in ratings if one.reader == name} for name in names}
        answers = rated_answers(ratings)
        pairs = []
        for pair in combinations(names, 2):
            shared = [answer for answer in answers if all(answer in read[name] for name in pair)]
            if shared:
                both = np.stack([rating_array(ratings, reader=name, answers=shared) for name in pair])
                pairs.append((*pair, both))
        return sorted(pairs, key=lambda one: -one[2].shape[1])

    def warnings(self) -> list[str]:
        """Return warnings for readers of the report."""
        warnings = []
        for model, rows in self.rows.items():
            n_waiting = int((rows.is_answered & np.isnan(rows.ratings).all(axis=(1, 2))).sum())
            if n_waiting:
                warnings.append(f"{n_waiting:,} answers of {model} were not rated and are missing from all figures")
        return warnings


def _sections(rated: Rated) -> Iterator[Section]:
    yield questions_section(rated.tasks)
    yield section(
        "answers",
        "Answers",
        "As section 4.1 of paper 001",
        "Numbers of tasks answered and rated. As in the paper, figures and tables omit unanswered tasks; "
        "reveal-bench score gives these tasks the lowest scores.",
        _answers_table(rated),
    )
    source = "As Tables 1 and 2 and Fig. 3 of paper 001"
    yield section("scores", "Scores", source, _content_words(rated), _distributions(rated), _scores_table(rated))
    if len(rated.models) > 1:
        words = (
            "Wilcoxon signed-rank tests, two-sided, on the tasks that both models answered; p values are adjusted by "
            "Benjamini and Hochberg over the five text scores of a pair of models."
        )
        source = "As section 3.4 of paper 001"
        yield section("differences", "Models compared", source, words, _differences_table(rated))
    if rated.pairs:
        words = (
            "Agreement on answers that two readers rated. The first reader of a pair rated more answers. MAD: mean "
            f"absolute difference. Figures show the pairs with the most answers in common, at most {MOST_PAIRS}."
        )
        figures = [_agreement_figure(n, *pair) for n, pair in enumerate(rated.pairs[:MOST_PAIRS], start=1)]
        source = "As Table 3 and Fig. 5 of paper 001"
        records = [one for pair in rated.pairs for one in compare_readers(*pair) if one["n"]]
        table = agreement_table("agreement", records, _csv("agreement", records))
        yield section("readers", "Readers compared", source, words, *figures, table)


def questions_section(tasks: Sequence[TaskRecord]) -> Section:
    """Return the section on the questions' scores and tags; a task may have several tags of one kind."""
    scored = {
        _title(name): Counter(score for task in tasks if (score := (task.question_scores or {}).get(name)) is not None)
        for name in QUESTION_SCORES
    }
    scored = {name: counts for name, counts in scored.items() if counts}
    figures = [_question_figure(scored)] if scored else []
    words = f"{len(tasks):,} tasks; the scores and tags describe the questions, not the answers."
    source = "As section 3.1 and Supplementary Fig. 1 of paper 001"
    return section("questions", "Questions", source, words, *figures, _tags_table(tasks))


def _tags_table(tasks: Sequence[TaskRecord]) -> PageTable:
    counted = Counter(("category", task.category.replace("_", " ")) for task in tasks)
    counted.update((name, value) for name in TAGS for task in tasks for value in task.tags.get(name, ()))
    order = ("category", *TAGS)
    ordered = sorted(counted.items(), key=lambda one: (order.index(one[0][0]), -one[1], one[0][1]))
    rows = [
        {"tag": _title(name), "value": value, "tasks": f"{n:,}", "share": percent(n / len(tasks))}
        for (name, value), n in ordered
    ]
    csv = Csv.of("tags", ("tag", "value", "tasks", "share"), [(*tag, n, n / len(tasks)) for tag, n in ordered])
    return printed_table("tags", "What the tasks are about", "Tasks with each tag, most common first", rows, csv.text)


def _question_figure(scored: Mapping[str, Counter[int]]) -> Illustration:
    means = "; ".join(f"{name} {sum(c.elements()) / c.total():.2f}" for name, c in scored.items())
    return Illustration(
        "question-scores",
        "Scores of the questions",
        f"Share of the tasks with each score from {LOWEST} to {HIGHEST}.",
        f"Bars: for each score of the questions, the share of tasks. Means: {means}.",
        partial(_draw_questions, scored),
    )


def _draw_questions(scored: Mapping[str, Counter[int]], width: float) -> Figure:
    def draw(axes: Axes, name: str) -> None:
        counts = scored[name]
        shares = [100 * counts[score] / counts.total() for score in range(LOWEST, HIGHEST + 1)]
        axes.bar(range(LOWEST, HIGHEST + 1), shares, 0.7, **paints(1)[0].options)

    def scale(axes: Axes) -> None:
        axes.set_xticks(range(LOWEST, HIGHEST + 1))
        axes.set_ylim(0, 100)

    return panels(list(scored), width, draw, "Score", "Share of tasks (%)", scale=scale)


# Tables ---------------------------------------------------------------------------------------------------------------


def _answers_table(rated: Rated) -> PageTable:
    records = []
    for model, rows in rated.rows.items():
        is_rated = np.asarray(~np.isnan(rows.ratings).all(axis=2))
        records.append(
            {
                "model": model,
                "tasks": len(rows),
                "answered": int(rows.is_answered.sum()),
                "unanswered": int((~rows.is_answered).sum()),
                "rated": int(is_rated.any(axis=1).sum()),
                "rated by two or more": int((is_rated.sum(axis=1) > 1).sum()),
                "readers": int(is_rated.any(axis=0).sum()),
            }
        )
    is_incomplete = any(tasks is None for tasks in rated.answered.values())
    caption = "Tasks by model" + ("; a task without a rating counts as unanswered" if is_incomplete else "")
    rows_shown = [
        {name: f"{value:,}" if name != "model" else str(value) for name, value in one.items()} for one in records
    ]
    return printed_table("answers", "Answers and ratings", caption, rows_shown, _csv("answers", records))


def _scores_table(rated: Rated) -> PageTable:
    rows = []
    for criterion in rated.criteria:
        summaries = {model: rated.summaries.get((model, criterion)) for model in rated.models}
        rows.append({"score": _title(criterion)} | {model: _summary(one) for model, one in summaries.items()})
    records = [asdict(one) for one in rated.summaries.values()]
    caption = (
        "Mean ± standard deviation (over n − 1) of the scores, from 1 (poor) to 5. n: number of scored answers; 5: "
        "share of answers with score 5; below 3: share of answers with a score below 3"
    )
    return printed_table("scores", "Scores by model", caption, rows, _csv("scores", records))


def _summary(one: RubricSummary | None) -> str:
    if one is None:
        return ""
    spread = "" if np.isnan(one.sd) else f" ± {one.sd:.2f}"
    return f"{one.mean:.2f}{spread}\nn = {one.n}; 5: {percent(one.share_of_5)}; below 3: {percent(one.share_below_3)}"


def _differences_table(rated: Rated) -> PageTable:
    records: list[dict[str, Any]] = [
        {"model_a": a, "model_b": b, **asdict(one)}
        for a, b in combinations(rated.models, 2)
        for one in compare_models(rated.scores[a], rated.scores[b], criteria=REPORTED_OF_TEXT)
    ]
    rows = [
        {
            "models": f"{one['model_a']} less {one['model_b']}",
            "score": _title(one["criterion"]),
            "difference": number(one["mean_difference"], 2),
            "answers of both": f"{one['n']:,}",
            "of these unequal": f"{one['n_differ']:,}",
            "p": _p(one["p_value"]),
            "adjusted p": _p(one["p_adjusted"]),
        }
        for one in records
    ]
    caption = "Mean score differences and their tests"
    return printed_table("differences", "Differences of models", caption, rows, _csv("differences", records))


def agreement_table(name: str, records: Sequence[Mapping[str, Any]], unrounded: str) -> PageTable:
    """Return a page table of the records of :func:`compare_readers`; `unrounded` is the text of its CSV file."""
    rows = [
        {
            "readers": f"{one['reader_a']} and {one['reader_b']}",
            "score": _title(one["criterion"]),
            "answers": f"{one['n']:,}",
            "quadratic kappa": number(one["cohen_kappa_quadratic"]),
            "MAD": number(one["mean_absolute_difference"]),
            "within 1": percent(one["share_within_1"]),
            "first reader": f"{number(one['mean_a'], 2)} ± {number(one['sd_a'], 2)}",
            "second reader": f"{number(one['mean_b'], 2)} ± {number(one['sd_b'], 2)}",
        }
        for one in records
    ]
    caption = "Agreement of two readers, and each reader's mean ± SD over the same answers"
    return printed_table(name, "Agreement of readers", caption, rows, unrounded)


def compare_readers(first: str, second: str, both: FloatArray) -> list[dict[str, Any]]:
    """Return the agreement of two readers per criterion (paper 001, Table 3).

    Kappa is quadratic-weighted. Means and standard deviations (over n - 1) cover the `n` answers that both readers
    rated. NaN where undefined.

    Parameters
    ----------
    both : scores (2, n_answers, 6), columns as in :data:`reveal_bench.metrics.ordinal.CRITERIA`; NaN if a score is
        missing

    Examples
    --------
    >>> row = compare_readers("A", "B", np.array([[[5] + [1] * 5, [4] + [1] * 5], [[5] + [1] * 5, [3] + [1] * 5]]))[0]
    >>> row["mean_absolute_difference"], row["mean_a"], row["mean_b"], row["n"]
    (0.5, 4.5, 4.0, 2)
    """
    records = []
    for one in reader_agreement(*both):
        a, b = _of_both(both, one.criterion)
        record: dict[str, Any] = {
            "reader_a": first,
            "reader_b": second,
            "criterion": one.criterion,
            "n": one.n,
            "cohen_kappa_quadratic": one.kappa,
            "mean_absolute_difference": one.mean_absolute_difference,
            "share_within_1": _within_one(a, b),
        }
        for name, scores in (("a", a), ("b", b)):
            record[f"mean_{name}"] = float(scores.mean()) if one.n else np.nan
            record[f"sd_{name}"] = float(scores.std(ddof=1)) if one.n > 1 else np.nan
        records.append(record)
    return records


def _of_both(both: FloatArray, criterion: str) -> FloatArray:
    """Return one criterion's scores, shape (2, n), for the answers that both readers scored."""
    pair: FloatArray = both[:, :, CRITERIA.index(criterion)]
    return pair[:, ~np.isnan(pair).any(axis=0)]


def _within_one(a: FloatArray, b: FloatArray) -> float:
    return float((np.abs(a - b) <= 1).mean()) if len(a) else np.nan


def _csv(name: str, records: Sequence[Mapping[str, Any]]) -> str:
    return Csv.of(name, [*records[0]], [[*one.values()] for one in records]).text


def _title(criterion: str) -> str:
    return criterion.replace("_", " ").capitalize()


def _p(value: float) -> str:
    return "not tested" if np.isnan(value) else "< 0.001" if value < 0.0005 else f"{value:.3f}"


def _content_words(rated: Rated) -> str:
    order = ", ".join(f"{model} {number(rated.content_by_reader(model), 2)}" for model in rated.models)
    return (
        "A score is the mean over an answer's readers. Content is the minimum of these means for process, execution "
        f"and synthesis. With each reader's minimum averaged instead, mean content would be: {order}."
    )


# Figures --------------------------------------------------------------------------------------------------------------


def _distributions(rated: Rated) -> Illustration:
    shares = {
        (criterion, model): _distribution(rated.rows[model].columns()[criterion])
        for criterion in rated.criteria
        for model in rated.models
    }
    means = ", ".join(
        f"{model} {number(rated.summaries[model, criterion].mean, 2)} of {_title(criterion)}"
        for criterion in rated.criteria[:1]
        for model in rated.models
        if (model, criterion) in rated.summaries
    )
    return Illustration(
        "distributions",
        "Distribution of scores",
        "Share of a model's scored answers by score, to the nearest half point. Means of two readers can end in .5; "
        "means of more readers are drawn at the nearest half point.",
        f"Bars: for each criterion and model, the share of answers with each score from 1 to 5. Means: {means}.",
        partial(_draw_distributions, shares, rated.criteria, rated.models),
    )


def _distribution(scores: FloatArray) -> FloatArray:
    """Return the proportion of scores at each of :data:`BINS`; NaN without scores."""
    defined = scores[~np.isnan(scores)]
    places = np.floor(2 * (defined - LOWEST) + 0.5).astype(np.int64)
    counts = np.bincount(places, minlength=len(BINS)).astype(np.float64)
    return counts / len(defined) if len(defined) else np.full(len(BINS), np.nan)


def _draw_distributions(
    shares: Mapping[tuple[str, str], FloatArray], criteria: Sequence[str], models: Sequence[str], width: float
) -> Figure:
    looks = paints(len(models))
    thick = 0.42 / len(models)
    by_title = {_title(criterion): criterion for criterion in criteria}
    top = 105 * max(float(np.nan_to_num(one).max()) for one in shares.values())

    def draw(axes: Axes, title: str) -> None:
        for k, (model, look) in enumerate(zip(models, looks, strict=True)):
            left = BINS - 0.21 + k * thick
            axes.bar(left, 100 * shares[by_title[title], model], thick, align="edge", **look.options)

    def scale(axes: Axes) -> None:
        _scores_below(axes)
        axes.set_ylim(0, top)

    return panels(
        list(by_title), width, draw, "Score", "Share of answers (%)", scale=scale,
        series=list(zip(models, looks, strict=True)),
    )  # fmt: skip


def _scores_below(axes: Axes) -> None:
    axes.set_xlim(LOWEST - 0.4, HIGHEST + 0.4)
    axes.set_xticks(range(LOWEST, HIGHEST + 1))


def _agreement_figure(place: int, first: str, second: str, both: FloatArray) -> Illustration:
    pairs = {name: _of_both(both, name) for name in CRITERIA}
    titles = {
        f"{_title(name)}: {percent(_within_one(*pair), 0)} within 1": pair
        for name, pair in pairs.items()
        if pair.shape[1]
    }
    return Illustration(
        f"agreement-{place}",
        f"Scores of {first} and {second}",
        f"Scores of two readers; larger marks stand for more answers ({both.shape[1]} in total). Dashed: equal "
        "scores. Above each panel, the share of answers on which they differ by at most one.",
        f"Per criterion, the scores of {second} against those of {first}. {'; '.join(titles)}.",
        partial(_draw_agreement, titles, first, second),
    )


def _draw_agreement(titles: Mapping[str, FloatArray], first: str, second: str, width: float) -> Figure:
    def draw(axes: Axes, title: str) -> None:
        places, counts = np.unique(titles[title], axis=1, return_counts=True)
        axes.plot([LOWEST, HIGHEST], [LOWEST, HIGHEST], color=SOFT, linewidth=0.8, linestyle=DASHED)
        sizes = _LARGEST**2 * counts / counts.max()
        axes.scatter(
            places[0], places[1], s=sizes, color=paints(1)[0].colour, edgecolors="white", linewidths=0.4, zorder=3
        )

    def scale(axes: Axes) -> None:
        _scores_below(axes)
        axes.set_ylim(LOWEST - 0.5, HIGHEST + 0.5)
        axes.set_yticks(range(LOWEST, HIGHEST + 1))

    return panels(list(titles), width, draw, f"Score of {first}", f"Score of {second}", scale=scale)
