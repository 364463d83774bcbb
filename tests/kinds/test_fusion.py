"""Fusing readers' boxes into one reference: by hand, and 500 random cases against a plain version of each rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.detection.fusion import FUSIONS, fuse_boxes, fuse_readers
from reveal_bench.kinds.detection.records import instances, is_known
from reveal_bench.kinds.localization.records import Annotation, Box, LocalizationRecord
from tests.cli.test_score import call

Readers = list[list[Box]]


def overlap(a: Box, b: Box) -> float:
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    shared = max(wide, 0) * max(high, 0)
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def mean(boxes: list[Box]) -> Box:
    x, y, width, height = np.mean(boxes, axis=0).tolist()
    return x, y, width, height


def plainly(readers: Readers, how: str, iou: float) -> list[Box]:
    """Fuse by growing lesions until no box joins (union, majority) or by adding each box to the nearest mean (wbf)."""
    left = [(reader, box) for reader, boxes in enumerate(readers) for box in boxes]
    lesions: list[list[tuple[int, Box]]] = []
    while left:
        one = left.pop(0)
        if how == "wbf":
            near = [(overlap(mean([box for _, box in own]), one[1]), -k) for k, own in enumerate(lesions)]
            if near and max(near)[0] >= iou:
                lesions[-max(near)[1]].append(one)
            else:
                lesions.append([one])
            continue
        lesion = [one]
        while joining := [o for o in left if any(o[0] != m[0] and overlap(o[1], m[1]) >= iou for m in lesion)]:
            lesion += joining
            left = [o for o in left if o not in joining]
        lesions.append(lesion)
    if how == "majority":
        lesions = [own for own in lesions if len({reader for reader, _ in own}) > 1]
    if how != "union":
        return [mean([box for _, box in own]) for own in lesions]
    corners = [[(x, y, x + w, y + h) for _, (x, y, w, h) in own] for own in lesions]
    return [
        (min(c[0] for c in own), min(c[1] for c in own), max(c[2] for c in own) - min(c[0] for c in own),
         max(c[3] for c in own) - min(c[1] for c in own)) for own in corners
    ]  # fmt: skip


@pytest.mark.parametrize("how", FUSIONS)
def test_fusing_follows_the_rule(how: str) -> None:
    rng = np.random.default_rng(0)
    n_joined = 0
    for _ in range(500):
        readers: Readers = []
        for _ in range(3):
            boxes = rng.integers([0, 0, 5, 5], [20, 20, 25, 25], (rng.integers(0, 4), 4))
            readers.append([(float(a), float(b), float(c), float(d)) for a, b, c, d in boxes])
        fused, expected = fuse_boxes(readers, how, 0.4), plainly(readers, how, 0.4)  # type: ignore[arg-type]
        np.testing.assert_allclose(sorted(fused), sorted(expected))
        n_joined += len(fused) < sum(map(len, readers))
    assert n_joined > 100


def drawn(reader: str, finding: str, *boxes: Box) -> Annotation:
    return Annotation(finding, "individual", None, (), boxes[0], len(boxes), 100, boxes, reader)


def test_boxes_are_kept_and_disagreements_are_unknown() -> None:
    status: dict[str, int | None] = {"Effusion": 1, "Nodule": 1, "Mass": None, "Edema": 0}
    box, near, far = (10.0, 10.0, 20.0, 20.0), (12.0, 10.0, 20.0, 20.0), (70.0, 70.0, 9.0, 9.0)
    drawings = (
        drawn("R1", "Effusion", box), drawn("R2", "Effusion", near), drawn("R3", "Effusion", far),
        drawn("R1", "Nodule", box), drawn("R2", "Nodule", far), drawn("R3", "Mass", box),
    )  # fmt: skip
    record = LocalizationRecord(
        "a", "p", "s", "PA", 100, 100, status, annotations=drawings, missing=("Effusion", "Nodule")
    )
    (fused,) = fuse_readers([record], "majority")
    assert instances(fused, "Effusion") == ((11.0, 10.0, 20.0, 20.0),)
    assert [is_known(fused, finding) for finding in status] == [True, False, False, True]
    assert fused.annotations[1:] == drawings
    (fused,) = fuse_readers([record], "union")
    assert instances(fused, "Effusion") == ((10.0, 10.0, 22.0, 20.0), far)
    assert fused.label_status["Mass"] == 1
    assert fused.missing == ()


def test_folder_records_that_its_boxes_are_fused(tmp_path: Path) -> None:
    call("phantom", tmp_path / "download", "--style", "vindr-cxr", "--images", 12, "--long-side", 96)
    words = ("--task", "detection", "--images", "withhold", "--fuse", "majority", "--keep-going")
    call("build", tmp_path / "download", "--out", tmp_path / "data", *words)
    records = KINDS["detection"].data.read_records(tmp_path / "data", "train")
    assert any(instances(record, finding) for record in records for finding in record.label_status)
    card = " ".join((tmp_path / "data" / "README.md").read_text().split())
    assert "boxes of single readers were fused: of boxes that overlap by an IoU of 0.5 or more the mean" in card
    assert "no problems" in call("validate", tmp_path / "data").stdout
    for options, rule in ((("--fuse", "mean"), "must be one of union, majority, wbf"), (("--fuse-iou", 0), "fuse-iou")):
        refused = call("build", tmp_path / "download", "--out", tmp_path / "x", *words, *options, expect=1).stderr
        assert rule in refused
    plain = ("--images", "withhold", "--fuse", "union", "--keep-going")
    refused = call("build", tmp_path / "download", "--out", tmp_path / "x", *plain, expect=1).stderr
    assert "readers' boxes are fused only for detection" in refused
