"""A synthetic CheXlocalize download, written once, and one record to vary."""

import json
import shutil

import numpy as np
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord, SalientPoint
from reveal_bench.masks import encode_mask
from reveal_bench.phantom import write_chexlocalize
from tests.conftest import made_once


@pytest.fixture(scope="session")
def download(tmp_path_factory):
    """24 test and 6 validation films, with every trap; never changed."""

    def make(root):
        write_chexlocalize(root, n_images=24, n_val=6, seed=3, long_side=160)

    return made_once(tmp_path_factory, "chexlocalize", make)


@pytest.fixture
def copy(download, tmp_path):
    """A download that a test may change, its inner root."""
    shutil.copytree(download, tmp_path / "copy")
    return tmp_path / "copy" / "chexlocalize" / "chexlocalize"


def load(root, name):
    return json.loads((root / "CheXlocalize" / f"{name}.json").read_text())


def change(root, name, edit):
    path = root / "CheXlocalize" / f"{name}.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.fixture
def benchmark():
    return BENCHMARKS["chexlocalize"]


def make_record(i=0, *, patient=None, finding="Edema", **changes):
    """Image i of a patient: a rectangle of i + 3 columns and 4 rows at (2, 5), in a picture of 30 x 20."""
    mask = np.zeros((20, 30), bool)
    mask[5:9, 2 : 5 + i] = True
    annotation = Annotation(
        finding,
        "ground_truth",
        encode_mask(mask),
        (((2.0, 5.0), (4.1 + i, 5.0), (4.0, 8.3)),),
        (2, 5, 3 + i, 4),
        1,
        4 * (3 + i),
    )
    status = {name: int(name == finding) for name in BENCHMARKS["chexlocalize"].findings}
    fields = {
        "image_id": f"img{i}",
        "patient_id": patient or f"p{i}",
        "study_id": f"s{i}",
        "view": "AP",
        "width": 30,
        "height": 20,
        "label_status": status,
        "annotations": (annotation,),
        "points": (SalientPoint(finding, "human_benchmark", 3.25 + i / 8, 6.125),),
        "source_sha256": f"{i:064x}",
    }
    return LocalizationRecord(**{**fields, **changes})


@pytest.fixture
def record():
    return make_record
