"""Films as reference, readers and a model drew on them: where the model is furthest behind, and where it is ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reveal_bench.kinds.folder import split_shards
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.reports.films import Drawing, Example, Shown, legend_of, make_film
from reveal_bench.reports.page import Form

__all__ = ["ExampleCase", "choose_cases", "films_of"]

Pair = tuple[str, str]

_MOST_BEHIND, _MOST_AHEAD = 3, 2


@dataclass(frozen=True)
class ExampleCase:
    """An image and a finding with the IoU of both systems."""

    image_id: str
    finding: str
    model: float
    human: float


def choose_cases(ious: Mapping[Pair, tuple[float, float]]) -> list[ExampleCase]:
    """The cases in which the model is furthest behind, each of another finding, then those in which it is ahead.

    Parameters
    ----------
    ious : (image_id, finding) -> IoU of the model and of the readers; NaN is left out
    """
    cases = [ExampleCase(*pair, *own) for pair, own in ious.items() if own[0] == own[0] and own[1] == own[1]]
    ordered = sorted(cases, key=lambda one: (one.model - one.human, one.image_id, one.finding))
    behind = _each_another(ordered, _MOST_BEHIND, ahead=False)
    return behind + _each_another(ordered[::-1], _MOST_AHEAD, ahead=True)


def _each_another(cases: Sequence[ExampleCase], most: int, *, ahead: bool) -> list[ExampleCase]:
    found: dict[str, ExampleCase] = {}
    for one in cases:
        if (one.model > one.human) == ahead and one.model != one.human and len(found) < most:
            found.setdefault(one.finding, one)
    return list(found.values())


def films_of(
    cases: Sequence[ExampleCase],
    folder: Path,
    split: str,
    records: Sequence[LocalizationRecord],
    systems: Mapping[str, Sequence[LocalizationPrediction]],
) -> Form:
    """The films of the cases; `systems` are the predictions of model and readers by name."""
    by_image = {record.image_id: record for record in records}
    answers = [(name, {(p.image_id, p.finding): p for p in given}) for name, given in systems.items()]
    pictures = _pictures(folder, split, [one.image_id for one in cases])
    shown = []
    for one in cases:
        record, pair = by_image[one.image_id], (one.image_id, one.finding)
        reference = record.reference(one.finding)
        drawn = [
            Drawing(1, one.finding, "reference", True, rles=[reference.rle] if reference and reference.rle else [])
        ]
        for number, (name, given) in enumerate(answers, start=2):
            answer = given.get(pair)
            if answer is not None:
                masks = [] if answer.mask is None else [answer.mask]
                drawn.append(Drawing(number, one.finding, name, False, rles=masks, points=list(answer.points)))
        film = make_film(pictures.get(one.image_id), record.width, record.height, drawn)
        names = list(systems)
        caption = f"IoU {100 * one.model:.0f} % of {names[0]}, {100 * one.human:.0f} % of {names[1]}"
        spoken = f"Radiograph with {one.finding} as drawn by the reference, {names[0]} and {names[1]}"
        shown.append(Example([one.finding], [Shown(film, caption, spoken, legend_of(drawn))]))
    return Form("examples", {"rows": shown, "has_layer": bool(shown)})


def _pictures(folder: Path, split: str, image_ids: Sequence[str]) -> dict[str, bytes]:
    """image_id -> bytes of its picture; those whose pixels are withheld are not there."""
    import pyarrow.parquet as pq

    found = {}
    for shard in split_shards(folder, "localization", split):
        table = pq.read_table(shard, columns=["image_id", "image"], filters=[("image_id", "in", list(image_ids))])
        for row in table.to_pylist():
            if row["image"] is not None and row["image"]["bytes"] is not None:
                found[row["image_id"]] = row["image"]["bytes"]
    return found
