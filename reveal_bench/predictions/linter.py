"""The linter: one pass over a prediction file, all problems at once, knowing only the public manifest.

Conventions
-----------
The linter never sees a reference, so everything it says may be shown to anybody. It ends in one of two ways: a report
with errors and no predictions, or a report without errors whose predictions are fit for scoring as they stand.

Of the canonical kinds, ``localization`` is read here; ``findings`` and ``tasks`` have modules of their own.

This module strings the steps together and holds the checks that need several predictions: masks (their run lengths
are read all at once), duplicates, pairs that are not asked, missing pairs. All rules: ``rules.RULES``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from reveal_bench.masks import MaskProblem, pack_masks, parse_masks, rasterize_polygons, union_masks
from reveal_bench.predictions.checks import Draft, EntryChecker
from reveal_bench.predictions.formats import read_entries
from reveal_bench.predictions.jsonl import check_entries
from reveal_bench.predictions.patterns import describe, note_patterns
from reveal_bench.predictions.report import LintReport, ProblemLog
from reveal_bench.predictions.source import Limits, open_source
from reveal_bench.records import LocalizationPrediction, Manifest

__all__ = ["lint_predictions"]

Pair = tuple[str, str]

_MASK_TEXT_AT_ONCE = 8 << 20  # characters of run lengths decoded together: bounds memory
_PAIRS_NAMED = 5


def lint_predictions(
    path: Path,
    manifest: Manifest,
    *,
    grid: int | None = None,
    allow_missing: bool = False,
    leave_out_unknown: bool = False,
    limits: Limits = Limits(),
    name: str | None = None,
) -> LintReport:
    """Check a file of localization predictions against the public manifest of a split.

    Parameters
    ----------
    path : file of any accepted format, see :mod:`reveal_bench.predictions.formats`
    manifest : what the split asks
    grid : cells per side that `cell` refers to; the manifest's unless given
    allow_missing : whether asked pairs may be absent (they are scored as misses): a warning instead of an error
    leave_out_unknown : whether predictions on images that the split does not have are left out, with a warning, instead
        of being errors: for a file that answered another version of the split
    limits : how large the file and its parts may be
    name : name to show for the file, such as the one it was uploaded under; that of `path` unless given

    Returns
    -------
    LintReport; its `predictions` are empty if there is any error

    Raises
    ------
    OSError
        If the file cannot be read. What is in it never raises.
    ValueError
        If `grid` is out of range.
    """
    log, data = open_source(path, limits, name)
    if data is None:
        return LintReport.of_unread(log, allow_missing)
    log.left_out = frozenset(("unknown-image",) if leave_out_unknown else ())
    file_format, entries = read_entries(data, manifest, limits, log)
    checker = EntryChecker(manifest, grid if grid is not None else manifest.grid, file_format, limits, log)
    drafts = check_entries(entries, checker.check, log)
    _check_masks(drafts, checker)
    if not log.has_errors:
        _fill_contours(drafts, checker, limits, log)
    missing: list[Pair] = []
    if not drafts and not log.has_errors:
        log.refuse("empty-file", "the file holds no predictions")
    if not log.stopped:  # what was not read is not missing
        if file_format != "coco-results":
            _note_duplicates(drafts, checker)
        _note_spellings(checker, log)
        _note_not_asked(drafts, log)
        log.note_left_out("images")
        missing = _missing_pairs(drafts, manifest)
        _note_missing(missing, manifest, allow_missing, log)
        note_patterns(drafts, log)
    statistics = describe(drafts, manifest, len(missing))
    predictions = () if log.has_errors else tuple(_predictions(drafts))
    return LintReport(
        log.file, file_format, len(drafts), tuple(log.problems), predictions, tuple(missing), statistics, allow_missing
    )


def _check_masks(drafts: Sequence[Draft], checker: EntryChecker) -> None:
    """Read the run lengths of all masks; set each draft's area."""
    for batch in _batches([draft for draft in drafts if draft.rle is not None]):
        masks, problems = parse_masks([draft.rle for draft in batch if draft.rle is not None])
        areas = masks.areas
        for i, draft in enumerate(batch):
            if i in problems:
                _note_mask_problem(draft, problems[i], checker)
            else:
                draft.area = int(areas[i])
                if draft.area == 0 and draft.is_asked:
                    checker.warning(draft, "empty-mask", "rle.counts", "the mask of a pair that is asked for is empty")


def _fill_contours(drafts: Iterable[Draft], checker: EntryChecker, limits: Limits, log: ProblemLog) -> None:
    """Turn the contours of each asked pair into one mask, kept by the first draft of the pair."""
    by_pair: dict[Pair, list[Draft]] = {}
    for draft in drafts:
        pair = _pair(draft)
        if pair is not None and draft.is_asked and draft.polygons and draft.rle is None:
            by_pair.setdefault(pair, []).append(draft)
    work = sum(_filling_work(draft) for same in by_pair.values() for draft in same)
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
            checker.warning(first, "empty-mask", "polygons", "the contours of a pair that is asked for hold no pixel")


def _filling_work(draft: Draft) -> int:
    """Vertices times rows spanned, summed over contours: filling looks at every edge in every row."""
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
            message = f"this image and finding were already predicted at {first_line[pair]}"
            checker.error(draft, "duplicate-pair", "finding", message, list(pair), hint="several points go in `points`")
        else:
            first_line[pair] = draft.line


def _note_spellings(checker: EntryChecker, log: ProblemLog) -> None:
    for (spelling, finding), n in checker.spellings.items():
        message = f"read as {finding} in {n} {'entry' if n == 1 else 'entries'}"
        log.warning("finding-spelling", message, field="finding", value=spelling)


def _is_superfluous(draft: Draft) -> bool:
    """Whether a known pair is not asked. An empty mask for it is normal: CheXlocalize files hold all findings."""
    return _pair(draft) is not None and not draft.is_asked


def _note_not_asked(drafts: Iterable[Draft], log: ProblemLog) -> None:
    superfluous = [draft for draft in drafts if _is_superfluous(draft) and draft.area != 0]
    if superfluous:
        first = superfluous[0]
        message = f"{len(superfluous)} predictions are of pairs that this split does not ask for: they are not scored"
        log.warning("not-asked", message, line=first.line, hint=f"the first is {', '.join(_pair(first) or ())}")


def _missing_pairs(drafts: Iterable[Draft], manifest: Manifest) -> list[Pair]:
    predicted = {_pair(draft) for draft in drafts}
    return [pair for pair in manifest.asked_pairs() if pair not in predicted]


def _note_missing(missing: Sequence[Pair], manifest: Manifest, allow_missing: bool, log: ProblemLog) -> None:
    if not missing:
        return
    named = "; ".join(f"{image_id}, {finding}" for image_id, finding in missing[:_PAIRS_NAMED])
    rest = len(missing) - _PAIRS_NAMED
    n_asked = len(manifest.asked_pairs())
    message = f"{len(missing)} of {n_asked} asked pairs have no prediction: {named}{f'; and {rest} more' * (rest > 0)}"
    if allow_missing:
        log.warning("missing-pairs", message, hint="they are scored as misses")
    else:
        log.error("missing-pairs", message, hint="allow missing pairs to have them scored as misses")


def _predictions(drafts: Iterable[Draft]) -> Iterator[LocalizationPrediction]:
    """One prediction per asked pair, in file order; only COCO results have several drafts of one pair."""
    by_pair: dict[Pair, list[Draft]] = {}
    for draft in drafts:
        pair = _pair(draft)
        if pair is not None and draft.is_asked:
            by_pair.setdefault(pair, []).append(draft)
    for (image_id, finding), same in by_pair.items():
        first = same[0]
        scores = [draft.score for draft in same if draft.score is not None]
        boxed = [draft for draft in same if draft.box is not None]
        best = max(boxed, key=lambda draft: -1.0 if draft.score is None else draft.score, default=None)
        masks = [mask for draft in same if (mask := draft.rle or draft.filled) is not None]
        yield LocalizationPrediction(
            image_id,
            finding,
            points=first.points,
            cell=first.cell,
            box=best.box if best else None,
            mask=union_masks(pack_masks(masks)) if len(masks) > 1 else next(iter(masks), None),
            score=max(scores, default=None),
            line=first.line,
        )
