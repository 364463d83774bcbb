"""Report on localization runs: hit rates, error categories, heat maps, grids, prompts and example images.

The report has the contents of Figures 2 to 8 and Tables 1 and 2 of paper 000. All scores equal those of ``reveal-bench
score``.

Example images, like Figure 5 of paper 000, show the reference's outline, and the cell and error category of every run.
Cases with the most anatomy errors come first, then cases that at least one run hits and most runs miss. Each finding is
shown once before any is repeated. Images are the central squares that models saw, without the grid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from reveal_bench.analyses.published import OwnScores
from reveal_bench.arrays import FloatArray
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.kinds.localization.references import list_cases
from reveal_bench.masks import BoolMask, pack_regions
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.scales import intervals_text
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.reports.films import view_in_words
from reveal_bench.reports.page import Csv, Lines, Part, Section, Text
from reveal_bench.reports.run_errors import (
    CATEGORIES,
    CATEGORY_PAINTS,
    MISSES,
    CaseError,
    CaseErrors,
    ErrorShare,
    ErrorShares,
    categorize,
    draw_errors,
    errors_table,
)
from reveal_bench.reports.run_errors import shares as shares_of
from reveal_bench.reports.run_hits import (
    HitRates,
    by_difference,
    core_runs,
    draw_grids,
    draw_hit_rates,
    draw_prompts,
    hit_runs,
    macro_of,
    means_table,
    random_guesses,
    rates_table,
    score_runs,
)
from reveal_bench.reports.run_places import (
    average_picture,
    cell_counts,
    draw_heat,
    fallback_counts,
    fallback_table,
    heat_rows,
    prediction_shares,
    repeated,
    top_cells_table,
    truth_shares,
)
from reveal_bench.reports.run_report import RunReport
from reveal_bench.reports.runs import Split, short_names
from reveal_bench.reports.style import (
    INK,
    LINE,
    WIDE,
    Illustration,
    cut,
    interval_of,
    new_figure,
    paints,
    percent,
    place_axes,
    style,
    width_of,
    wrap,
)
from reveal_bench.words import count_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from PIL.Image import Image


@dataclass
class HitReport(RunReport):
    """Report of localization runs."""

    what: ClassVar[str] = "Localization"

    @cached_property
    def scores(self) -> HitRates:
        """Hit rates and chance levels of all runs."""
        runs, options = hit_runs(self.runs, self.split), self.options
        return score_runs(runs, self.split, findings=options.findings, resampling=options.resampling)

    @cached_property
    def core(self) -> list[int]:
        """Indices of the runs in the main figures."""
        runs, grid = self.scores.runs, self.split.info.grid
        return core_runs(runs, grid if grid in [run.grid for run in runs] else runs[0].grid)

    @cached_property
    def order(self) -> list[str]:
        """Findings in the order of figures and tables."""
        return by_difference(self.scores, 0, self.options.reference)

    def sections(self) -> list[Section]:
        """Yield sections on hit rates, errors and positions, and on grids and prompts if runs differ in them."""
        return [
            Section("hit-rates", self.scores.rate.capitalize(), self._hit_rates()),
            Section("errors", "Errors", self._error_parts()),
            Section("places", "Where", self._heat_parts()),
            *self._comparisons(),
        ]

    def own_columns(self) -> tuple[tuple[str, ...], Sequence[tuple[object, ...]]]:
        """Return the columns `grid`, type of prediction and hit metric for ``runs.csv``."""
        return ("grid", "protocol", "hit_metric"), [(run.grid, run.protocol, run.metric) for run in self.scores.runs]

    def means_by_epoch(self) -> Mapping[str, Sequence[float]]:
        """Return run label -> mean hit rate of each epoch."""
        findings = self.scores.findings
        return {run.label: [macro_of(rows, run.metric, findings) for rows in run.epochs] for run in self.scores.runs}

    def own_scores(self) -> list[OwnScores]:
        """Return each main run's hit rates by finding."""
        runs = self.scores.runs
        estimates = [self.scores.estimates(i) for i in range(len(runs))]
        return [
            OwnScores(run.label, run.metric, {name: of_run[name].value for name in self.scores.findings}, run.grid)
            for run, of_run in zip(runs, estimates, strict=True)
        ]

    @cached_property
    def cases(self) -> dict[str, list[CaseErrors]]:
        """Run label -> categorized cases of each epoch, for the main runs."""
        options = self.options
        known: dict[str, Any] = {"anatomy": options.anatomy, "reviews": options.reviews}
        return {
            run.label: [categorize(part, self.split.records, grid=run.grid, **known) for part in run.predictions]
            for run in (self.scores.runs[i] for i in self.core)
        }

    @cached_property
    def errors(self) -> dict[str, list[list[ErrorShare]]]:
        """Run label -> shares of the error categories in each epoch."""
        shares, scores = {}, self.scores
        for label, epochs in self.cases.items():
            present = {case.finding for case in epochs[0]}
            names = [name for name in scores.findings if name in present]
            if names:
                shares[label] = [shares_of(cases, findings=names, resampling=scores.resampling) for cases in epochs]
        return shares

    @cached_property
    def cells(self) -> dict[str, Counter[str]]:
        """Run label -> number of answers in each cell."""
        sizes = {record.image_id: record.size for record in self.split.records}
        return {run.label: cell_counts(run, sizes) for run in self.scores.runs}

    def _hit_rates(self) -> list[Part]:
        scores, order, reference = self.scores, self.order, self.options.reference
        grid = scores.runs[self.core[0]].grid
        first, last = scores.runs[0].label, scores.runs[reference].label
        ranked = (
            "" if reference == 0 else f"Pathologies are in falling order of the difference between {first} and {last}."
        )
        return [
            draw_hit_rates(scores, self.split, self.core, order, ranked),
            means_table(scores, reference),
            rates_table(scores, order),
            fallback_table(fallback_counts(self.split.records, scores.findings, grid), grid),
        ]

    def _error_parts(self) -> list[Part]:
        if not self.errors:
            return [Text("No question is about a frontal image, and errors are only categorized on these.")]
        names = dict(zip(self.errors, short_names([self.scores.runs[i] for i in self.core]), strict=True))
        n: dict[str, int] = {}
        means: dict[str, dict[str, dict[str, float]]] = {}
        for label, epochs in self.errors.items():
            table = means.setdefault(names[label], {})
            for share in (share for epoch in epochs for share in epoch if share.finding != MACRO):
                n[share.finding] = share.n
                part = table.setdefault(share.finding, dict.fromkeys(CATEGORIES, 0.0))
                part[share.category] += (0.0 if math.isnan(share.estimate.value) else share.estimate.value) / len(
                    epochs
                )
        figures = map(self._noted, draw_errors(ErrorShares(means, n), self.order))
        return [*figures, errors_table(self.errors), *self._example_parts()]

    def _example_parts(self) -> list[Part]:
        if not self.options.examples:
            return []
        names = short_names([self.scores.runs[i] for i in self.core])
        own = zip(names, self.cases.values(), strict=True)
        first = {name: [c for c in epochs[0] if c.finding in self.order] for name, epochs in own}
        pictures, grid = FolderPictures(self.split.folder), self.scores.runs[self.core[0]].grid
        figure = draw_examples(first, self.split.records, pictures.open, self.options.examples, grid)
        return [Text("No examples: no run missed a reference completely.") if figure is None else self._noted(figure)]

    def _noted(self, figure: Illustration) -> Illustration:
        """Return a figure of cells whose caption names the runs that answered with points."""
        runs = [self.scores.runs[i] for i in self.core]
        names = ", ".join(name for name, run in zip(short_names(runs), runs, strict=True) if run.metric == "point_hit")
        note = f" For {names}, the cell is the one that contains the point, and full hits are not the hits of Figure 1."
        return replace(figure, caption=figure.caption + note * bool(names))

    def _heat_parts(self) -> list[Part]:
        split, runs = self.split, [self.scores.runs[i] for i in self.core]
        grid = Grid(runs[0].grid)
        truths = truth_shares(split.records, self.scores.findings, grid)
        if not truths:
            return [
                top_cells_table(self.cells),
                Text("No question is about a frontal image, and heat maps are only drawn for these."),
            ]
        picture = average_picture(split.folder, split.name, progress=self.options.progress)
        if not split.info.synthetic:
            picture = picture.without_few()
        n = {name: len(truth.image_ids) for name, truth in truths.items()}
        sizes = {record.image_id: record.size for record in split.records}
        rows = heat_rows("ground truth", {name: truth.shares for name, truth in truths.items()}, n)
        for run in runs:
            rows += heat_rows(run.label, prediction_shares(run.predictions, sizes, truths, grid), n)
        file = Csv.of("heat-maps", ("run", "finding", "cell", "share", "n"), rows)
        figures = draw_heat(runs, split, truths, picture, self.order)
        note = Text("A separate CSV file has the share of every cell.", csv=file)
        return [*figures, note, top_cells_table(self.cells)]

    def _comparisons(self) -> Iterator[Section]:
        """Yield the comparisons of grids and of prompts, for models with runs that only differ in one of them."""
        runs = self.scores.runs
        by_grid: dict[tuple[str, str | None], dict[int, int]] = {}
        by_style: dict[str, dict[str | None, int]] = {}
        for i, run in enumerate(runs):
            if run.run is None:
                continue
            by_grid.setdefault((run.model, run.style), {}).setdefault(run.grid, i)
            if run.grid == runs[self.core[0]].grid:
                by_style.setdefault(run.model, {}).setdefault(run.style, i)
        pairs = [[places[grid] for grid in sorted(places)] for places in by_grid.values() if len(places) > 1]
        if pairs:
            yield Section("grids", "Grid size", [draw_grids(self.scores, self.order, pairs)])
        if any(len(places) > 1 for places in by_style.values()):
            indices = [i for places in by_style.values() for i in places.values()]
            yield Section("prompts", "Prompts", [draw_prompts(self.scores, indices)])

    def summary(self) -> str:
        """Return a summary of the main runs' mean hit rates and the chance level."""
        scores, split = self.scores, self.split
        asked = [record for record in split.records if record.asked("present")]
        n_patients = len({record.patient_id for record in asked})
        n_questions = int(scores.chance[0].n.sum())
        names = short_names([scores.runs[i] for i in self.core])
        macros = [(scores.estimates(i)[MACRO], name) for i, name in zip(self.core, names, strict=True)]
        ranked = sorted(
            macros, key=lambda pair: -math.inf if math.isnan(pair[0].value) else pair[0].value, reverse=True
        )
        means = "; ".join(f"{name} {percent(e.value)} ({interval_of(e.low, e.high)})" for e, name in ranked)
        others = len(scores.runs) - len(self.core)
        means += f". Table 1 has {others} more, with other prompts or grids" if others else ""
        chance = " and ".join(
            f"{percent(scores.estimates(i, chance=True)[MACRO].value)} "
            + ("for points" if guess == "points" else f"on the {guess} grid")
            for guess, i in random_guesses(scores, self.core).items()
        )
        return (
            f"{count_text(len(scores.runs), 'run')} located {len(scores.findings)} pathologies in "
            f"{split.title} {split.info.version}, split {split.name}: {n_questions:,} questions with a reference on "
            f"{len(asked):,} images of {n_patients:,} patients. Mean {scores.rate} over pathologies, with 95% "
            f"interval: {means}. Chance is {chance}. In parentheses: "
            f"{intervals_text(scores.resampling)}."
        )

    def warnings(self) -> list[str]:
        """Return the common warnings, and those about repeated answers and about restricted images."""
        info = self.split.info
        known = BENCHMARKS.get(info.benchmark)
        is_restricted = not info.synthetic and (known is None or known.licence == "restricted")
        films = "the example images" if self.options.examples else "the average image"
        words = f"{films} and the heat maps come from data whose terms may forbid redistribution"
        return [*super().warnings(), *repeated(self.cells), *[words] * is_restricted]

    def methods(self) -> list[Part]:
        """Return the definitions of hits, chance and categories, as this package computes them."""
        metrics = sorted({metric for run in self.scores.runs for metric in (run.metric, run.chance_metric)})
        recipes = [self.scores.recipe(metric) for metric in metrics]
        words = _method_words(self.scores, self.split)
        return [*map(Text, words), Text("Signatures of the numbers:"), Lines(recipes)]


def _method_words(scores: HitRates, split: Split) -> list[str]:
    grids = sorted({run.grid for run in scores.runs})
    named = " and ".join(f"{grid} × {grid}" for grid in grids)
    n_patients = len({record.patient_id for record in split.records})
    several, draw = max(len(run.epochs) for run in scores.runs) > 1, scores.resampling
    resampled = "the images that every run was asked about" if split.part else "the split"
    what = (
        "Each question names one image and one finding that is present in it"
        if split.info.asks == "present"
        else "Every pair of an image and a finding that has a reference is scored"
    )
    return [
        f"{what}. The central square of the image, whose side is its short side, is divided into {named} equal cells. "
        "A predicted cell is a hit if the reference covers at least half of its area; if the reference covers less "
        "than half of every cell, any cell that it touches is a hit. Predicted points, boxes and masks are scored as "
        "points: the point itself, the centre of the box, or the pixel deepest inside the mask. A point in the "
        "reference is a hit. Questions without a usable answer are misses. Means are unweighted over pathologies."
        + (" Only the first epoch of a run is scored." if several else ""),
        "The chance level of an image is the share of cells that would be hits, or for points the share of the image "
        "in the reference. The chance level of a pathology is "
        "the mean over its images.",
        f"In parentheses: {intervals_text(draw)}, for scores and for differences paired by patient. Standard "
        f"deviations are those of the mean when all {n_patients:,} patients of {resampled} are resampled "
        f"with replacement {draw.n_resamples:,} times (seed {draw.seed}).",
        "Answers on frontal images are categorized. A full hit is a hit as defined above; a partial hit is any other "
        "cell that the reference touches. Without overlap, readers or known anatomy decide whether the finding is "
        "plausible in the cell (position error) or not (anatomy error). If neither decides, the miss is unreviewed. "
        "Points outside the central square are a category of their own.",
        "The definitions follow Gosai et al., Beyond Diagnosis: Evaluating Multimodal LLMs for Pathology "
        "Localization in Chest Radiographs (arXiv 2509.18015), sections 3.3, 3.4 and 4.1, except that intervals "
        "treat patients, not images, as the units.",
    ]


# Example images ------------------------------------------------------------------------------------------------------

MOST_EXAMPLES = 12
SIDE_PX = 512
_REFERENCE = "#ff6ad5"
_ABREAST = 3
Pair = tuple[str, str]


@dataclass(frozen=True)
class _ErrorExample:
    """An example case: the image (n, n) in [0, 255], its reference, and every run's answer."""

    finding: str
    view: str
    film: FloatArray
    reference: BoolMask
    answers: Mapping[str, CaseError]


def draw_examples(
    cases: Mapping[str, Sequence[CaseError]],
    records: Sequence[LocalizationRecord],
    open_picture: Callable[[str], Image],
    most: int,
    grid: int,
) -> Illustration | None:
    """Return a figure of at most `most` examples; None if no run missed anything.

    Parameters
    ----------
    cases : run label -> cases from :func:`~reveal_bench.reports.run_errors.categorize`
    open_picture : image_id -> the whole radiograph
    grid : cells per side

    Raises
    ------
    ValueError
        If the folder lacks the image of an example.
    """
    by_pair: dict[Pair, dict[str, CaseError]] = {}
    for label, own in cases.items():
        for case in own:
            by_pair.setdefault((case.image_id, case.finding), {})[label] = case
    pairs = _select_pairs(by_pair, most)
    if not pairs:
        return None
    image_ids = {image_id for image_id, _ in pairs}
    references = {
        (record.image_id, finding): (record, reference)
        for record, finding, reference in list_cases([one for one in records if one.image_id in image_ids])
    }
    examples = []
    for pair in pairs:
        record, reference = references[pair]
        mask = pack_regions([reference.region], [reference.size]).dense(0)
        film, outline = _square(open_picture(pair[0]), mask)
        examples.append(_ErrorExample(pair[1], record.view, film, outline, by_pair[pair]))
    listed = "; ".join(f"{one.finding}: {', '.join(_answer_text(label, case) for label, case in one.answers.items())}"
                     for one in examples)  # fmt: skip
    return Illustration(
        "examples",
        "Example images",
        "Central squares of single images with the outline of the reference (pink) and every run's cell. Below each "
        "image is the category of every answer; unreviewed misses are only called “miss”. Cases with the most "
        "anatomy errors come first, then cases with a hit and the most misses. Each finding is shown once before any "
        "is repeated.",
        f"Radiographs with reference and cells. {listed}.",
        partial(_draw, examples, list(cases), Grid(grid)),
        has_narrow=False,
    )


def _select_pairs(by_pair: Mapping[Pair, Mapping[str, CaseError]], most: int) -> list[Pair]:
    """Return the cases that some run missed, most informative first, alternating between findings."""

    def order(pair: Pair) -> tuple[int, bool, int, Pair]:
        categories = [case.category for case in by_pair[pair].values()]
        n_missed = sum(category in MISSES for category in categories)
        return -categories.count("anatomy"), "full_hit" not in categories, -n_missed, pair

    missed = [pair for pair, own in by_pair.items() if any(case.category in MISSES for case in own.values())]
    turns: dict[str, int] = {}
    ranked: list[tuple[int, int, Pair]] = []
    for pair in sorted(missed, key=order):
        turns[pair[1]] = turns.get(pair[1], 0) + 1
        ranked.append((turns[pair[1]], len(ranked), pair))
    return [pair for _, _, pair in sorted(ranked)[:most]]


def _square(picture: Image, mask: BoolMask) -> tuple[FloatArray, BoolMask]:
    """Return an image's and a mask's central squares, reduced to at most :data:`SIDE_PX` pixels a side."""
    from PIL import Image

    left, top, length = Grid(1).square(mask.shape)
    side = min(SIDE_PX, int(length))
    box, size = (left, top, left + length, top + length), (side, side)
    film = picture.convert("L").resize(size, Image.Resampling.BOX, box=box)
    outline = Image.fromarray(np.asarray(255 * mask, np.uint8)).resize(size, Image.Resampling.BOX, box=box)
    return np.asarray(film, np.float64), np.asarray(outline) > 127


def _answer_text(label: str, case: CaseError, width: float = math.inf) -> str:
    """Return a run's name, cell and category as text; the name is shortened to fit `width` millimetres."""
    kind = CATEGORY_PAINTS[case.category][0].removesuffix(", not reviewed")
    rest = f" {case.cell or 'no cell'}, {kind}"
    return label + rest if width == math.inf else cut(label, width - width_of(rest)) + rest


def _draw(examples: Sequence[_ErrorExample], labels: Sequence[str], grid: Grid, width: float = WIDE) -> Figure:
    columns = min(_ABREAST, len(examples))
    gap = 4.0
    side = (width - gap * (_ABREAST - 1)) / _ABREAST
    looks = dict(zip(labels, paints(len(labels)), strict=True))
    with style():
        titles = [wrap(f"{one.finding} ({view_in_words(one.view)})", side - 1, most=2) for one in examples]
        rows = -(-len(examples) // columns)
        top = 2 + LINE * max(title.count("\n") + 1 for title in titles)
        tall = top + side + 2 + (LINE + 0.6) * len(labels) + 3
        figure = new_figure(rows * tall, width)
        for number, (one, title) in enumerate(zip(examples, titles, strict=True)):
            row, column = divmod(number, columns)
            left, low = column * (side + gap), (rows - row) * tall - top - side
            axes = place_axes(figure, left, low, side, side)
            axes.set_title(title, fontsize=8, loc="left", pad=3)
            _draw_film(axes, one, grid, {label: look.colour for label, look in looks.items()})
            for line, (label, case) in enumerate(one.answers.items()):
                height = low - 2 - (LINE + 0.6) * (line + 0.7)
                key = place_axes(figure, left, height, 2.4, 2.4)
                key.set_axis_off()
                key.add_patch(_cell_patch((0, 0, 1, 1), looks[label].colour))
                words = _answer_text(label, case, side - 4)
                figure.text((left + 3.8) / width, (height + 0.5) / (rows * tall), words, fontsize=8, color=INK)
    return figure


def _draw_film(axes: Axes, one: _ErrorExample, grid: Grid, colours: Mapping[str, str]) -> None:
    n = len(one.film)
    axes.imshow(one.film, cmap="gray", vmin=0, vmax=255, extent=(0, n, n, 0), interpolation="nearest")
    if one.reference.any() and not one.reference.all():
        middles = np.arange(n) + 0.5
        axes.contour(middles, middles, one.reference, [0.5], colors=[_REFERENCE], linewidths=1.4)
    taken: dict[str, int] = {}
    for label, case in one.answers.items():
        if case.cell is None:
            continue
        place = taken[case.cell] = taken.get(case.cell, -1) + 1
        column, row = grid.parse(case.cell)
        cell, inset = n / grid.n, n / grid.n * 0.1 * place  # nested outlines keep runs with the same cell visible
        corner = column * cell + inset, row * cell + inset, cell - 2 * inset, cell - 2 * inset
        axes.add_patch(_cell_patch(corner, colours[label]))
    axes.set_xlim(0, n)
    axes.set_ylim(n, 0)
    axes.set_axis_off()


def _cell_patch(corner: tuple[float, float, float, float], colour: str) -> Rectangle:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, Stroke

    x, y, width, height = corner
    # A light outline keeps dark colours visible on dark images
    around = [Stroke(linewidth=2.6, foreground="white"), Normal()]
    return Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=1.4, path_effects=around)
