"""Linter of detection files, which checks entries as in localization, but requires scores and allows several per
finding.

Conventions
-----------
An entry is one detection: a box, a mask (run lengths or contours) or a point, and the model's confidence. COCO results
are the usual format. A finding that is not marked on an image counts as answered "absent", so no answer is ever
missing. The line ``{"image_id": "...", "abstain": true}`` abstains on a whole image. Entries keep the order of the
file, which breaks ties between equal scores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reveal_bench.kinds.localization.checks import Draft, EntryChecker
from reveal_bench.kinds.localization.formats import read_entries
from reveal_bench.kinds.localization.lint import (
    check_masks,
    describe_drafts,
    filling_work,
    note_coordinates,
    note_spellings,
    runs_problems,
)
from reveal_bench.kinds.localization.records import ImageManifest
from reveal_bench.kinds.parts import override
from reveal_bench.masks import pack_masks, rasterize_polygons
from reveal_bench.predictions.abstain import Abstentions
from reveal_bench.predictions.files import open_source
from reveal_bench.predictions.jsonl import RawPrediction, check_entries
from reveal_bench.predictions.limits import Limits, LintOptions
from reveal_bench.predictions.report import LintReport, ProblemLog

MOST_ON_IMAGE = 100
"""Largest number of detections of one finding on one image; COCO's evaluation has the same limit."""
_FEW = 20  # with fewer entries, equal scores are not reported
_PLACES = ("point", "box", "rle", "polygons")


class DetectionChecker(EntryChecker):
    """Checker of one file's entries, each of which must have a score and mark a single location."""

    @override
    def check(self, entry: RawPrediction) -> Draft:
        """Check `entry` and log all of its problems."""
        draft = super().check(entry)
        if "score" not in entry.fields:
            hint = "the model's confidence in [0, 1], by which detections are ranked"
            self.error(entry, "missing-score", "score", "`score` is missing", dict(entry.fields), hint=hint)
        for field in ("cell", "points"):
            if field in entry.fields:
                message = f"a detection is one of {', '.join(_PLACES)}"
                hint = "write one entry for each point" if field == "points" else "give its box"
                self.error(entry, "one-place", field, message, entry.fields[field], hint=hint)
        return draft


def lint_detections(path: Path, manifest: ImageManifest, options: LintOptions = LintOptions()) -> LintReport:
    """Check a file of detections against the public manifest of a split.

    Parameters
    ----------
    path : file of any format of :mod:`reveal_bench.kinds.localization.formats`
    manifest : public manifest of the split
    options : see :class:`~reveal_bench.predictions.limits.LintOptions`; no image needs a prediction

    Returns
    -------
    LintReport; its `predictions`, one per entry, are empty if there is any error

    Raises
    ------
    OSError
        If the file cannot be read. The content of the file never raises an error.
    """
    limits = options.limits
    log, data = open_source(path, limits, options.name)
    if data is None:
        return LintReport.of_unread(log, allow_missing=False)
    log.left_out = frozenset(("unknown-image",) if options.leave_out_unknown else ())
    file_format, entries = read_entries(data, manifest, limits, log)
    del data  # the text of a parsed document is no longer needed
    checker = DetectionChecker(manifest, manifest.grid, file_format, limits, log)
    declined = Abstentions(("image_id",), ((image, "") for image in manifest.rows), "unknown-image", log)
    drafts = check_entries(declined.answers(entries), checker.check, log)
    declined.check([(draft.row.image_id, "") for draft in drafts if draft.row is not None])
    check_masks(drafts, checker)
    log.n_not_asked = sum(
        draft.row is not None and draft.finding is not None and not draft.is_asked for draft in drafts
    )
    drafts = [draft for draft in drafts if draft.row is None or draft.finding is None or draft.is_asked]
    if not log.has_errors:
        _fill_contours(drafts, limits, log)
    if not drafts and not log.n_not_asked and not declined.lines and not log.has_errors:
        log.refuse("empty-file", "the file holds no predictions")
    if not log.stopped:
        note_spellings(checker, log)
        log.note_left_out("images")
        log.note_not_asked({})
        _note_crowds(drafts, checker)
        _note_repeated(drafts, log)
        _note_scores(drafts, log)
        note_coordinates(drafts, log)
    predictions = () if log.has_errors else tuple(draft.prediction() for draft in drafts)
    problems = [*log.problems, *runs_problems(predictions, limits, log.file)]
    if len(problems) > len(log.problems):
        predictions = ()
    rest = _describe(drafts, manifest), False, *declined.counted
    return LintReport(log.file, file_format, len(drafts), tuple(problems), predictions, (), *rest)


def _fill_contours(drafts: Iterable[Draft], limits: Limits, log: ProblemLog) -> None:
    drawn = [draft for draft in drafts if draft.polygons and draft.rle is None]
    work = sum(map(filling_work, drawn))
    if work > limits.polygon_work:
        rule = f"contours may have at most {limits.polygon_work} vertices times rows in all"
        log.refuse("polygon-work", rule, value=work, hint="send run lengths, or fewer vertices")
        return
    for draft in drawn:
        assert draft.row is not None
        draft.filled = rasterize_polygons(draft.polygons, draft.row.size)
        draft.area = int(pack_masks([draft.filled]).areas[0])


def _note_crowds(drafts: Sequence[Draft], checker: DetectionChecker) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for draft in drafts:
        if draft.row is not None and draft.finding is not None:
            pair = draft.row.image_id, draft.finding
            counts[pair] += 1
            if counts[pair] == MOST_ON_IMAGE + 1:
                message = f"an image may have at most {MOST_ON_IMAGE} detections of a finding"
                checker.error(draft, "crowd", "image_id", message, list(pair), hint="keep those with the best scores")


def _note_repeated(drafts: Sequence[Draft], log: ProblemLog) -> None:
    seen: set[object] = set()
    repeated = []
    for draft in drafts:
        if draft.row is None or draft.finding is None:
            continue
        place = (draft.row.image_id, draft.finding, draft.points, draft.box, draft.rle, draft.polygons)
        repeated += [draft] if place in seen else []
        seen.add(place)
    if repeated:
        message = f"{len(repeated)} detections repeat the location and finding of another: each counts as a false alarm"
        hint = "were they meant to be removed by non-maximum suppression?"
        log.warning("repeated-detection", message, line=repeated[0].line, hint=hint)


def _note_scores(drafts: Sequence[Draft], log: ProblemLog) -> None:
    scores = {draft.score for draft in drafts if draft.score is not None}
    if len(scores) == 1 and len(drafts) >= _FEW:
        message = f"all {len(drafts)} detections have the same score, which cannot order them"
        hint = "average precision and FROC then depend on the order of the file"
        log.warning("constant-score", message, field="score", value=scores.pop(), hint=hint)


def _describe(drafts: Sequence[Draft], manifest: ImageManifest) -> dict[str, Any]:
    """Return statistics for display: those of localization, ``images_without`` (images without a detection), and
    ``most_on_image``.
    """
    on_image: dict[str, int] = defaultdict(int)
    for draft in drafts:
        if draft.row is not None:
            on_image[draft.row.image_id] += 1
    statistics = describe_drafts(drafts, manifest)
    n_without = len(manifest.rows) - len(on_image)
    return {**statistics, "images_without": n_without, "most_on_image": max(on_image.values(), default=0)}
