"""Builds whose public files reveal references that another folder holds out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.overlaps import (
    OverlapError,
    cases_by_version,
    dataset_folders_beside,
    find_overlap,
    find_shared,
)
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.kinds.findings.records import StudyRecord

LABELS = replace(BENCHMARKS["reveal-cxr"], card="reveal-cxr")


def records(*studies: tuple[str, str]) -> list[StudyRecord]:
    """Return studies of (study id, patient id), all with the first label."""
    return [StudyRecord(study, patient, (REVEAL_LABELS[0],)) for study, patient in studies]


OWN = records(("own1", "a"), ("own2", "b"))
HELD = records(("p1_study1", "p1"), ("p2_study1", "p2"))


def build(
    place: Path, released: list[StudyRecord], held: list[StudyRecord], name: str = "labels", **more: object
) -> Path:
    """Build a benchmark of released and held-out studies in `place`/public and `place`/private."""
    splits = {"released": released, "holdout": held}
    places = {"holdout": place / "private", "holdout_split": "holdout", "pixels": "withhold", "overwrite": True}
    build_folder(splits, place / "public", replace(LABELS, name=name), **places, **more)  # type: ignore[arg-type]
    return place


@pytest.mark.parametrize(
    ("same", "cases"),
    [
        (("P1/Study1.dcm ", "x"), "1 of 2 held-out studies"),  # the same id in another spelling
        (("study9", "P1"), "1 of 2 held-out patients"),  # only the private folder names them
    ],
    ids=["study", "patient"],
)
def test_a_build_that_reveals_a_holdout_is_refused(tmp_path: Path, same: tuple[str, str], cases: str) -> None:
    first = build(tmp_path / "first", OWN, HELD)
    other = {"name": "other", "beside": [first / "public", first / "private"]}
    rule = (
        f"labels 1.0.0 must hold out .*, but the public split 'released' of other 1.0.0 reveals references of {cases}"
    )
    with pytest.raises(OverlapError, match=rule):
        build(tmp_path / "second", records(same), records(("z", "z")), **other)  # type: ignore[arg-type]
    assert not (tmp_path / "second/public").exists()
    build(tmp_path / "second", records(same), records(("z", "z")), accepted_overlaps=["labels"], **other)  # type: ignore[arg-type]


def test_a_build_whose_holdout_is_public_elsewhere_is_refused(tmp_path: Path) -> None:
    first = build(tmp_path / "first", OWN, HELD)
    with pytest.raises(
        OverlapError, match=r"other 1\.0\.0 must hold out .* of labels 1\.0\.0 reveals .* 1 of 2 held-out"
    ):
        build(tmp_path / "second", HELD, [*OWN[:1], *records(("z", "z"))], "other", beside=[first / "public"])


def test_a_version_may_publish_the_holdout_that_it_retires(tmp_path: Path) -> None:
    first = build(tmp_path / "first", OWN, HELD)
    beside = [first / "public", first / "private"]
    later = [*OWN, *HELD], records(("z", "z"), ("y", "y"))
    with pytest.raises(OverlapError, match=r"labels 1\.0\.0 must hold out .* of labels 1\.1\.0 reveals"):
        build(tmp_path / "second", *later, version="1.1.0", beside=beside)
    before = {"previous": beside[0], "previous_holdout": beside[1], "retire_holdout": True}
    build(tmp_path / "second", *later, version="1.1.0", beside=beside, **before)


def test_equal_holdouts_reveal_nothing_and_keyed_ids_match_only_under_one_key(tmp_path: Path) -> None:
    first, second = build(tmp_path / "a", OWN, HELD), build(tmp_path / "b", OWN, HELD, "other")
    folders = [place / half for place in (first, second) for half in ("public", "private")]
    one, other = cases_by_version(folders, b"k" * 32)
    assert find_overlap(one, other) is None
    shared = find_shared(one, other)
    assert shared is not None
    assert shared.sentence == "2 of 2 held-out patients are also held out in other 1.0.0"
    assert find_shared(one, replace(other, held_out={"study": {"x"}})) is None
    assert one.held_out == other.held_out
    assert {kind: len(digests) for kind, digests in one.held_out.items() if digests} == {"patient": 2, "study": 2}
    plain, _ = cases_by_version(folders)
    assert plain.held_out["patient"].isdisjoint(one.held_out["patient"])
    assert dataset_folders_beside(first / "public", None) == [(first / "private").resolve()]
