"""Broken JSON documents: CheXlocalize's three kinds, and COCO's results."""

from __future__ import annotations

import json

from tests.leaderboard.hostile.corpus import Bad, bad_texts
from tests.leaderboard.hostile.lines import HUGE
from tests.leaderboard.hostile.masks import N, spell

RLE = json.dumps({"size": [48, 64], "counts": spell(N)})
CONTOUR = "[[1, 1], [20, 1], [20, 20]]"


def masks(inner: str) -> str:
    return f'{{"IMAGE": {{{inner}}}}}'


def result(inner: str) -> str:
    return f'[{{"image_id": "IMAGE", "category_id": "FINDING", {inner}}}]'


TABLE: dict[str, tuple[str | bytes, str]] = {
    "an image twice": (f'{{"IMAGE": {{"FINDING": {RLE}}}, "IMAGE": {{"FINDING": {RLE}}}}}', "duplicate-key"),
    "a finding twice": (masks(f'"FINDING": {RLE}, "FINDING": {RLE}'), "duplicate-key"),
    "a list for an image": ('{"a": {"FINDING": {}}, "IMAGE": [1, 2]}', "wrong-type unknown-image"),
    "null for an image": (f'{{"IMAGE": {{"FINDING": {RLE}}}, "b": null}}', "wrong-type"),
    "a number for a mask": (masks(f'"FINDING": {RLE}, "Edema": 7'), "wrong-type"),
    "a mask without counts": (masks('"FINDING": {"size": [48, 64]}'), "wrong-type"),
    "a malformed mask": (masks('"FINDING": {"size": [48, 64], "counts": "o"}'), "rle-truncated"),
    "an unknown image": (f'{{"nobody": {{"FINDING": {RLE}}}}}', "unknown-image"),
    "an image of markup": (f'{{"<script>": {{"FINDING": {RLE}}}}}', "unknown-image"),
    "an image of 100 kB": (f'{{"{"i" * 60_000}": {{"FINDING": {RLE}}}}}', "text-length"),
    "500 findings of 60 kB": (
        masks(", ".join(f'"f{i}{"f" * 60_000}": {RLE}' for i in range(500))), "text-length"),
    "a path for a finding": (masks(f'"../../etc/passwd": {RLE}'), "unknown-finding"),
    "an empty document": ("{}", "missing-field missing-geometry"),
    "empty images": ('{"IMAGE": {}, "b": {}}', "empty-file"),
    "cut off": (masks(f'"FINDING": {RLE}')[:-9], "json-syntax"),
    "two documents": (masks(f'"FINDING": {RLE}') * 2, "json-syntax"),
    "deep": ('{"IMAGE": ' * 3000, "nesting"),
    "points: a text": (masks('"FINDING": [["a", "b"]]'), "wrong-type"),
    "points: NaN": (masks('"FINDING": [[NaN, 1]]'), "not-finite"),
    "points: 1e400": (masks('"FINDING": [[1e400, 1]]'), "not-finite"),
    "points: huge": (masks(f'"FINDING": [[{HUGE}, 1]]'), "outside-image"),
    "points: outside": (masks('"FINDING": [[64, 48]]'), "outside-image"),
    "points: many": (masks('"FINDING": [[1, 1], [2, 2]]'), "wrong-type"),
    "annotations: no size": (
        f'{{"IMAGE": {{"img_size": [48, 64], "FINDING": [{CONTOUR}]}}, "b": {{"FINDING": [{CONTOUR}]}}}}',
        "missing-field unknown-image"),
    "annotations: another size": (masks(f'"img_size": [64, 48], "FINDING": [{CONTOUR}]'), "image-size"),
    "annotations: a size of nonsense": (masks(f'"img_size": {{"$gt": 1}}, "FINDING": [{CONTOUR}]'), "image-size"),
    "annotations: outside": (masks('"img_size": [48, 64], "FINDING": [[[1, 1], [1e300, 1], [1, 1]]]'), "outside-image"),
    "annotations: one vertex": (masks('"img_size": [48, 64], "FINDING": [[[1, 1]]]'), "wrong-type"),
    "annotations: vertices of three": (masks('"img_size": [48, 64], "FINDING": [[[1, 1, 1], [2, 2, 2]]]'),
                                       "wrong-type"),
    "a COCO dataset": ('{"images": [], "annotations": [], "categories": []}', "format"),
    "a COCO dataset of contributors": ('{"info": {"contributor": "<script>"}, "images": []}', "format"),
    "COCO: no image": ('[{"category_id": "FINDING", "bbox": [1, 2, 3, 4]}]', "missing-field"),
    "COCO: an image number": ('[{"image_id": 7, "category_id": "FINDING", "bbox": [1, 2, 3, 4]}]', "image-number"),
    "COCO: category 0": ('[{"image_id": "IMAGE", "category_id": 0, "bbox": [1, 2, 3, 4]}]', "category-number"),
    "COCO: category 2": ('[{"image_id": "IMAGE", "category_id": 2, "bbox": [1, 2, 3, 4]}]', "category-number"),
    "COCO: a huge one": (f'[{{"image_id": "IMAGE", "category_id": {HUGE}, "bbox": [1, 2, 3, 4]}}]', "category-number"),
    "COCO: category true": ('[{"image_id": "IMAGE", "category_id": true, "bbox": [1, 2, 3, 4]}]', "wrong-type"),
    "COCO: a huge box": (result(f'"bbox": [{HUGE}, 1, 1, 1]'), "outside-image"),
    "COCO: a box of infinity": (result('"bbox": [1, 1, Infinity, 1]'), "not-finite"),
    "COCO: an odd contour": (result('"segmentation": [[1, 1, 5, 1, 5]]'), "wrong-type"),
    "COCO: contours of 1e15": (result('"segmentation": [[1, 1, 1e15, 1, 5, 1e9]]'), "outside-image"),
    "COCO: uncompressed runs": (result('"segmentation": {"size": [48, 64], "counts": [3072]}'), "wrong-type"),
    "COCO: a malformed mask": (result('"segmentation": {"size": [48, 64], "counts": "PP"}'), "rle-truncated"),
    "COCO: an unknown key": (result('"bbox": [1, 2, 3, 4], "<img src=x>": 1'), "unknown-field"),
    "COCO: lists in the list": ('[[{"image_id": "IMAGE"}], 7, null]', "not-an-object"),
    "COCO: lines in the list": ('[{"image_id": "IMAGE", "finding": "FINDING", "point": [1, 2]}]',
                                "unknown-field missing-geometry"),
    "COCO: 200,000 results": ("[" + "{}," * 199_999 + "{}]", "entries"),
    "a hundred thousand empty lists": ("[" + "[]," * 90_000 + "[]]", "not-an-object too-many-problems"),
    "millions of brackets": ("[" + "[]," * 3_000_000 + "[]]", "containers"),
    "millions of commas": ("[" + "0," * 11_000_000 + "0]", "containers"),
    "odd but sound: names for numbers": (result('"bbox": [1, 2, 3, 4], "score": 0.5, "id": 1, "area": 12'), ""),
    "odd but sound: an empty list beside a mask": (masks(f'"FINDING": {RLE}, "Edema": []'), ""),
}  # fmt: skip

DOCUMENTS: tuple[Bad, ...] = tuple(bad_texts("documents", TABLE))
