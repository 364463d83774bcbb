"""A folder of images with a table of boxes or labels: a mapping is suggested, and builds what the table says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from reveal_bench.api.suggested_mapping import suggest_box_mapping
from reveal_bench.kinds.localization.records import read_localization
from tests.cli.test_score import call

XYXY = (
    "filename,class,xmin,ymin,xmax,ymax\np0.png,Nodule,10,10,30,40\np1.png,Nodule,5,6,20,30\np1.png,Mass,50,20,90,70\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own" / "images").mkdir(parents=True)
    for i in range(3):
        grey = np.arange(80 * 100, dtype=np.uint8).reshape(80, 100) + i
        Image.fromarray(grey).save(tmp_path / "own" / "images" / f"p{i}.png")
    return tmp_path / "own"


def suggested(printed: str) -> str:
    """Return the mapping in a command's output, as a person would save it."""
    return printed.partition("then check and correct it:\n")[2]


def test_suggested_mapping_of_boxes_builds_them(folder: Path, tmp_path: Path) -> None:
    (folder / "boxes.csv").write_text(XYXY)
    done = call("inspect", folder)
    assert done.stdout.endswith(": own-boxes\n")
    refused = call("build", folder, "--out", tmp_path / "set", expect=1).stderr
    assert "--mapping must explain the columns of the table" in refused
    assert suggested(refused).startswith(suggested(done.stderr).rstrip())
    (folder / "mapping.yaml").write_text(suggested(done.stderr) + "ids: public\n")
    call("build", folder, "--out", tmp_path / "set", "--workers", 1)
    boxes = {(record.image_id, one.finding): one.boxes_xywh
             for record in read_localization(tmp_path / "set", "test") for one in record.annotations}  # fmt: skip
    assert boxes == {
        ("p0", "Nodule"): ((10, 10, 20, 30),), ("p1", "Nodule"): ((5, 6, 15, 24),), ("p1", "Mass"): ((50, 20, 40, 50),)
    }  # fmt: skip


TABLES = {
    "xywh and readers": (
        "image,finding,x,y,width,height,rad_id\np0.png,Nodule,1,2,30,40,R1\np0.png,Nodule,2,2,30,40,R2\n",
        {"xywh": ["x", "y", "width", "height"], "reader": {"column": "rad_id"}, "findings": ["Nodule"]},
    ),
    "fractions, and images without a box": (
        "image_id,class_name,class_id,x_min,y_min,x_max,y_max\np0,Mass,1,.1,.1,.5,.5\np1,No finding,14,,,,\n",
        {
            "coordinates": "normalised",
            "images": "in the table",
            "finding": {"column": "class_name"},
            "findings": ["Mass"],
        },
    ),
    "capitals and folders": (
        "Path;Label;X1;Y1;X2;Y2\nimages/p0.png;Mass;1;1;50;50\n",
        {"image": {"column": "Path", "matches": "file"}, "xyxy": ["X1", "Y1", "X2", "Y2"], "coordinates": "pixels"},
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_recognised(folder: Path, name: str) -> None:
    text, expected = TABLES[name]
    (folder / "own.csv").write_text(text)
    content = yaml.safe_load(suggest_box_mapping(folder) or "")
    assert {key: content[key] for key in expected} == expected


def test_coco_file_is_recognised(folder: Path) -> None:
    document = {
        "images": [{"id": 1, "file_name": "p0.png"}],
        "categories": [{"id": 1, "name": "Mass"}],
        "annotations": [],
    }
    (folder / "coco.json").write_text(json.dumps(document))
    content = yaml.safe_load(suggest_box_mapping(folder) or "")
    assert content == {"boxes": "coco.json", "images": "in the table", "findings": ["Mass"]}


@pytest.mark.parametrize("text", ["a,b\n1,2\n", XYXY.replace("p", "other"), "filename,class\np0.png,Mass\n"])
def test_tables_without_boxes_of_these_images_get_none(folder: Path, text: str) -> None:
    (folder / "t.csv").write_text(text)
    assert suggest_box_mapping(folder) is None


def test_suggested_mapping_of_labels_includes_the_images(folder: Path, tmp_path: Path) -> None:
    (folder / "labels.csv").write_text("n,image,patient,Nodule,Mass\n1,p0.png,A,1,0\n2,p1.png,B,0,0\n3,p2.png,C,1,1\n")
    mapping = suggested(call("inspect", folder).stderr)
    content = yaml.safe_load(mapping)
    assert (content["pictures"], content["study_key"]) == (True, {"column": "image", "matches": "file"})
    (folder / "mapping.yaml").write_text(mapping)
    built = call("build", folder, "--out", tmp_path / "set", "--id-key", tmp_path / "key", "--workers", 1).stdout
    assert "3 studies       3 images" in built
