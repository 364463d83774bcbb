"""Linter of localization files, which reports all problems in one pass and knows only the public manifest.

The linter never sees a reference, so its reports may be shown to anyone. The linter returns either a report with errors
and no predictions, or a report without errors whose predictions can be scored unchanged.

This module runs the steps in order and contains the checks that compare several predictions: masks (whose run lengths
are read all at once), duplicates, and pairs that are not asked or missing. It also contains the checks that need the
whole file: suspicious patterns of coordinates, collapsed predictions, and statistics. A pattern is a warning, never an
error, because an odd file may be correct. All rules: :data:`reveal_bench.predictions.rules.RULES`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.kinds.localization.checks import Draft, EntryChecker
from reveal_bench.kinds.localization.formats import read_entries
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, Point
from reveal_bench.masks import MaskProblem, Rle, measure_masks, pack_masks, rasterize_polygons, union_masks
from reveal_bench.predictions.abstain import Abstentions
from reveal_bench.predictions.files import open_source
from reveal_bench.predictions.jsonl import check_entries
from reveal_bench.predictions.limits import Limits, LintOptions
from reveal_bench.predictions.report import LintProblem, LintReport, ProblemLog
from reveal_bench.words import count_text

AREA_SHARES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Bounds of the histogram of mask area / image area; empty masks are counted separately."""

_FEW = 10  # smallest number of located predictions for reporting a pattern of coordinates
_RESIZED_TO = 1024
_MUCH_LARGER = 1.5
_ASK_ALL = "; score a detector on a folder built with `--task detection`, where every finding is asked"
_COLLAPSED_SHARE = 0.9
_COLLAPSED_OF = 20


def note_coordinates(drafts: Sequence[Draft], log: ProblemLog) -> None:
    """Warn of coordinates that look normalised, resized or exchanged; refuse files with all boxes in the first
    pixel."""
    located = [draft for draft in drafts if draft.row is not None and draft.coordinates]
    boxed = [draft for draft in located if draft.box is not None]
    if len(boxed) >= _FEW and len(boxed) == len(located) and all(_within(draft.coordinates, 1) for draft in boxed):
        message = f"all {len(boxed)} boxes are within the first pixel: they are in fractions of the image's sides"
        log.error("normalised-boxes", message, hint="give pixels of the full-size image")
    elif located and all(_within(draft.coordinates, 1) for draft in located):
        log.warning(
            "normalised-coordinates",
            f"all coordinates of {len(located)} predictions are in [0, 1]: they look normalised",
            hint="give pixels of the full-size image",
        )
    elif len(located) >= _FEW and all(_looks_resized(draft) for draft in located):
        log.warning(
            "resized-coordinates",
            f"all coordinates of {len(located)} predictions are within {_RESIZED_TO} pixels though their images are "
            f"much larger: as if the images had been resized",
            hint="scale them to the full-size image",
        )
    _note_exchanged(located, log)


def _within(points: Iterable[Point], most: float) -> bool:
    return all(0 <= x <= most and 0 <= y <= most for x, y in points)


def _looks_resized(draft: Draft) -> bool:
    assert draft.row is not None
    return min(draft.row.size) > _MUCH_LARGER * _RESIZED_TO and _within(draft.coordinates, _RESIZED_TO)


def _note_exchanged(located: Sequence[Draft], log: ProblemLog) -> None:
    n_outside = n_cured = 0
    for draft in located:
        assert draft.row is not None
        height, width = draft.row.size
        if any(not (0 <= x <= width and 0 <= y <= height) for x, y in draft.coordinates):
            n_outside += 1
            n_cured += all(0 <= y <= width and 0 <= x <= height for x, y in draft.coordinates)
    if n_outside >= 5 and n_cured >= 0.9 * n_outside:
        log.warning(
            "exchanged-axes",
            f"{n_cured} of the {n_outside} predictions outside their image are inside with x and y exchanged",
            hint="points are [x, y]: from the left edge, then from the top",
        )


_answer = attrgetter("points", "cell", "box", "rle", "polygons")


def _commonest(drafts: Iterable[Draft]) -> dict[str, tuple[Any, int, int]]:
    """Return finding -> (most common answer without its score, its frequency, number of answers).

    Empty masks are not counted, because they mean that the finding is absent.
    """
    alike: dict[str, Counter[Any]] = defaultdict(Counter)
    for draft in drafts:
        if draft.finding is not None and draft.area != 0:
            alike[draft.finding][_answer(draft)] += 1
    commonest = {finding: answers.most_common(1)[0] for finding, answers in alike.items()}
    return {finding: (*most_common, alike[finding].total()) for finding, most_common in commonest.items()}


def _note_collapse(drafts: Sequence[Draft], log: ProblemLog) -> None:
    """Warn of collapsed predictions, such as MedGemma's in paper 000: the same cell for nearly every image."""
    pointed = [draft for draft in drafts if draft.cell is not None or draft.points]
    for finding, ((points, cell, *_), n_same, n) in _commonest(pointed).items():
        if n >= _COLLAPSED_OF and n_same > _COLLAPSED_SHARE * n:
            log.warning(
                "same-answer",
                f"{n_same} of {n} predictions of {finding} are the same",
                field="point" if cell is None else "cell",
                value=points[0] if cell is None else cell,
                hint="did the model look at the images?",
            )


def describe(drafts: Sequence[Draft], manifest: ImageManifest, n_missing: int) -> dict[str, Any]:
    """Return statistics of a file for display.

    Returns
    -------
    the dict of :func:`describe_drafts`, and
        ``same_answer_share``: per finding, the proportion of its predictions that give its most common answer;
        ``share_missing``: missing pairs / asked pairs (0 if none is asked).
    """
    n_asked = sum(len(row.asked) for row in manifest.rows.values())
    return {
        **describe_drafts(drafts, manifest),
        "same_answer_share": {finding: n_same / n for finding, (_, n_same, n) in sorted(_commonest(drafts).items())},
        "share_missing": n_missing / n_asked if n_asked else 0.0,
    }


def describe_drafts(drafts: Sequence[Draft], manifest: ImageManifest) -> dict[str, Any]:
    """Return statistics of single predictions.

    Returns
    -------
    dict with
        ``per_finding``: number of predictions of each finding;
            ``kinds``: number of predictions with a point, cell, box, rle or polygons;
        ``mask_area_share``: histogram of mask area / image area, bins as text.
    """
    per_finding = Counter(draft.finding for draft in drafts)
    kinds = {kind: sum(map(bool, map(get, drafts))) for kind, get in _KINDS.items()}
    areas: Counter[str] = Counter()
    for draft in drafts:
        if draft.area is not None and draft.rle is not None:
            height, width = draft.rle.size
            areas[_AREA_BINS[bisect_left(AREA_SHARES, draft.area / (height * width))]] += 1  # open below
    return {
        "per_finding": {finding: per_finding[finding] for finding in manifest.findings if finding in per_finding},
        "kinds": {kind: n for kind, n in kinds.items() if n},
        "mask_area_share": {name: areas[name] for name in _AREA_BINS if name in areas},
    }


_KINDS = {"point": attrgetter("points")} | {name: attrgetter(name) for name in ("cell", "box", "rle", "polygons")}
_AREA_BINS = ["empty", *(f"{low:g}-{high:g}" for low, high in pairwise(AREA_SHARES))]


Pair = tuple[str, str]

_MASK_TEXT_AT_ONCE = 2 << 20  # number of characters of run lengths that are decoded together, to bound memory
_PAIRS_NAMED = 5


def lint_predictions(path: Path, manifest: ImageManifest, options: LintOptions = LintOptions()) -> LintReport:
    """Check a file of localization predictions against the public manifest of a split.

    Parameters
    ----------
    path : file of any accepted format, see :mod:`reveal_bench.kinds.localization.formats`
    manifest : public manifest of the split
    options : see :class:`~reveal_bench.predictions.limits.LintOptions`; allowed missing pairs are scored as misses

    Returns
    -------
    LintReport; its `predictions` are empty if there is any error

    Raises
    ------
    OSError
        If the file cannot be read. The content of the file never raises an error.
    ValueError
        If `grid` is out of range.
    """
    limits = options.limits
    log, data = open_source(path, limits, options.name)
    if data is None:
        return LintReport.of_unread(log, options.allow_missing)
    log.left_out = frozenset(("unknown-image",) if options.leave_out_unknown else ())
    file_format, entries = read_entries(data, manifest, limits, log)
    del data  # the text of a parsed document is no longer needed
    checker = EntryChecker(manifest, manifest.grid if options.grid is None else options.grid, file_format, limits, log)
    declined = Abstentions(("image_id", "finding"), manifest.asked_pairs(), "unknown-image", log)
    drafts = check_entries(declined.answers(entries), checker.check, log)
    declined.check([pair for draft in drafts if (pair := _pair(draft)) is not None])
    check_masks(drafts, checker)
    if not log.has_errors:
        _fill_contours(drafts, checker, limits, log)
    missing: list[Pair] = []
    if not drafts and not declined.lines and not log.has_errors:
        log.refuse("empty-file", "the file holds no predictions")
    if not log.stopped:  # unread entries are not missing
        if file_format != "coco-results":
            _note_duplicates(drafts, checker)
        note_spellings(checker, log)
        _note_not_asked(drafts, log, "" if manifest.is_part else _ASK_ALL)
        log.note_left_out("images")
        answered = {*map(_pair, drafts), *declined.lines}
        missing = [pair for pair in manifest.asked_pairs() if pair not in answered]
        _note_missing(missing, manifest, options, log)
        note_coordinates(drafts, log)
        _note_collapse(drafts, log)
    statistics = describe(drafts, manifest, len(missing))
    predictions = () if log.has_errors else tuple(_predictions(drafts))
    problems = [*log.problems, *runs_problems(predictions, limits, log.file)]
    if len(problems) > len(log.problems):
        predictions = ()
    rest = tuple(missing), statistics, options.allow_missing, *declined.counted
    return LintReport(log.file, file_format, len(drafts), tuple(problems), predictions, *rest)


def runs_problems(predictions: Sequence[LocalizationPrediction], limits: Limits, file: str) -> Iterator[LintProblem]:
    """Yield a problem for each mask with too many runs, after all masks of a pair were united."""
    masks = ((p.line, p.mask) for p in predictions if p.mask is not None and len(p.mask.counts) > limits.mask_runs)
    counted = ((line, _count_runs(mask)) for line, mask in masks)
    for line, n_runs in islice(((line, n) for line, n in counted if n > limits.mask_runs), limits.problems):
        message = f"a mask may have at most {limits.mask_runs} runs here, got {n_runs}"
        hint = "smooth the mask, or scale up a mask of lower resolution"
        yield LintProblem("error", file, line, "rle", "rle-runs", str(n_runs), message, hint)


def _count_runs(rle: Rle) -> int:
    """Return the number of runs in the text of a mask, which is the number of characters at which a code ends."""
    text = np.frombuffer(rle.counts.encode(), np.uint8)
    return int(np.count_nonzero((text - 48) & 0x20 == 0))


def check_masks(drafts: Sequence[Draft], checker: EntryChecker) -> None:
    """Read the run lengths of all masks; set each draft's area."""
    for batch in _batches([draft for draft in drafts if draft.rle is not None]):
        areas, problems = measure_masks([draft.rle for draft in batch if draft.rle is not None])
        for i, draft in enumerate(batch):
            if i in problems:
                _note_mask_problem(draft, problems[i], checker)
            else:
                draft.area = int(areas[i])
                if draft.area == 0 and draft.is_asked:
                    checker.warning(draft, "empty-mask", "rle.counts", "the mask of a pair that is asked for is empty")


def _fill_contours(drafts: Iterable[Draft], checker: EntryChecker, limits: Limits, log: ProblemLog) -> None:
    """Turn all contours of each asked pair into one mask, and store the mask in the first draft of the pair."""
    by_pair: dict[Pair, list[Draft]] = {}
    for draft in drafts:
        pair = _pair(draft)
        if pair is not None and draft.is_asked and draft.polygons and draft.rle is None:
            by_pair.setdefault(pair, []).append(draft)
    work = sum(filling_work(draft) for same in by_pair.values() for draft in same)
    if work > limits.polygon_work:
        rule = f"contours may have at most {limits.polygon_work} vertices times rows in all"
        log.refuse("polygon-work", rule, value=work, hint="send run lengths, or fewer vertices")
        return
    for same in by_pair.values():
        first = same[0]
        assert first.row is not None
        first.filled = rasterize_polygons([contour for draft in same for contour in draft.polygons], first.row.size)
        first.area = int(pack_masks([first.filled]).areas[0])
        if first.area == 0:
            checker.warning(
                first, "empty-mask", "polygons", "the contours of a pair that is asked for contain no pixel"
            )


def filling_work(draft: Draft) -> int:
    """Return vertices times rows spanned, summed over contours, because filling visits every edge in every row."""
    work = 0
    for contour in draft.polygons:
        rows = [y for _, y in contour]
        work += len(contour) * int(max(rows) - min(rows) + 1)
    return work


def _batches(drafts: Iterable[Draft]) -> Iterator[list[Draft]]:
    batch: list[Draft] = []
    n_characters = 0
    for draft in drafts:
        assert draft.rle is not None
        batch.append(draft)
        n_characters += len(draft.rle.counts)
        if n_characters > _MASK_TEXT_AT_ONCE:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


def _note_mask_problem(draft: Draft, problem: MaskProblem, checker: EntryChecker) -> None:
    assert draft.rle is not None
    is_counts = problem.field == "rle.counts"
    value: object = draft.rle.counts if is_counts else list(draft.rle.size)
    hint = "compressed run lengths as pycocotools writes them" if is_counts else ""
    checker.error(draft, problem.rule, problem.field, problem.message, value, hint=hint)


def _pair(draft: Draft) -> Pair | None:
    return (draft.row.image_id, draft.finding) if draft.row is not None and draft.finding is not None else None


def _note_duplicates(drafts: Iterable[Draft], checker: EntryChecker) -> None:
    first_line: dict[Pair, int] = {}
    for draft in drafts:
        pair = _pair(draft)
        if pair is None:
            continue
        if pair in first_line:
            message = f"this image and finding were already predicted in line {first_line[pair]}"
            checker.error(draft, "duplicate-pair", "finding", message, list(pair), hint="several points go in `points`")
        else:
            first_line[pair] = draft.line


def note_spellings(checker: EntryChecker, log: ProblemLog) -> None:
    """Warn of findings that were not spelled as the benchmark spells them."""
    for (spelling, finding), n in checker.spellings.items():
        message = f"read as {finding} in {count_text(n, 'entry')}"
        log.warning("finding-spelling", message, field="finding", value=spelling)


def _note_not_asked(drafts: Iterable[Draft], log: ProblemLog, advice: str) -> None:
    # empty masks of findings that are not asked are normal, because CheXlocalize files contain all findings
    superfluous = [draft for draft in drafts if _pair(draft) is not None and not draft.is_asked and draft.area != 0]
    if superfluous:
        first = superfluous[0]
        message = f"{len(superfluous)} predictions answer pairs that are not asked here: they are not scored"
        log.warning("not-asked", message, line=first.line, hint=f"the first is {', '.join(_pair(first) or ())}{advice}")


def _note_missing(missing: Sequence[Pair], manifest: ImageManifest, options: LintOptions, log: ProblemLog) -> None:
    if not missing:
        return
    named = "; ".join(f"{image_id}, {finding}" for image_id, finding in missing[:_PAIRS_NAMED])
    rest = len(missing) - _PAIRS_NAMED
    n_asked = len(manifest.asked_pairs())
    refusal = options.part_refusal(len(missing), n_asked)
    message = f"{len(missing)} of {n_asked} asked pairs have no prediction{refusal}: {named}"
    message += f"; and {rest} more" * (rest > 0)
    if options.allow_missing:
        log.warning("missing-pairs", message, hint="they are scored as misses")
    else:
        log.error("missing-pairs", message, hint=options.missing_hint("missing predictions"))


def _predictions(drafts: Iterable[Draft]) -> Iterator[LocalizationPrediction]:
    """Yield one prediction per asked pair, in file order; only COCO results have several drafts of one pair."""
    by_pair: dict[Pair, list[Draft]] = {}
    for draft in drafts:
        pair = _pair(draft)
        if pair is not None and draft.is_asked:
            by_pair.setdefault(pair, []).append(draft)
    for same in by_pair.values():
        if len(same) == 1:
            yield same[0].prediction()
            continue
        scores = [draft.score for draft in same if draft.score is not None]
        boxed = [draft for draft in same if draft.box is not None]
        best = max(boxed, key=lambda draft: -1.0 if draft.score is None else draft.score, default=None)
        masks = [mask for draft in same if (mask := draft.rle or draft.filled) is not None]
        yield replace(
            same[0].prediction(),
            box=best.box if best else None,
            mask=union_masks(pack_masks(masks)) if len(masks) > 1 else next(iter(masks), None),
            score=max(scores, default=None),
        )
