"""Real chest radiographs in DICOM with a table of labels, built like any dataset: only their pixels and facts.

The files come from ``../shared/data/dicom`` and pydicom-data (both MIT); without them this is skipped, and the
same is tested on synthetic films in ``test_reveal_cxr.py``.
"""

import io
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.sources.ids import keyed_id
from reveal_bench.sources.reveal_cxr import read
from tests.dicom.conftest import real
from tests.sources.reveal_trees import KEY

FILMS = ("966_scrubbed.dcm", "RG1_UNCR.dcm", "RG3_UNCR.dcm")
TEXT_VRS = ("AE", "DA", "DT", "LO", "LT", "PN", "SH", "ST", "TM", "UC", "UI", "UN", "UT")
PUBLISHED = ("Manufacturer", "ManufacturerModelName", "ViewPosition", "DetectorType")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import pydicom

    root = tmp_path_factory.mktemp("real")
    (root / "films").mkdir()
    rows = ["uid,findings"]
    for name, labels in zip(FILMS, ("None", "COPD|Lung mass", "None"), strict=True):
        shutil.copyfile(real(name), root / "films" / name)
        rows.append(f"{pydicom.dcmread(root / 'films' / name, stop_before_pixels=True).StudyInstanceUID},{labels}")
    (root / "labels.csv").write_text("\n".join(rows), encoding="utf-8")
    (root / "mapping.yaml").write_text(
        "table: labels.csv\nstudy_key: {column: uid}\nlabels: {list: {column: findings, separator: '|'}}\n"
        "demographics: {age: {from: header}, sex: {from: header}}\n",
        encoding="utf-8",
    )
    source_data = read(root, id_key=KEY)
    build_folder(source_data.splits, root / "out", BENCHMARKS["reveal-cxr"], extras=source_data.extras)
    return root


def rows(folder):
    return pq.read_table(next((folder / "out" / "multilabel").glob("test-*.parquet"))).to_pylist()


def test_facts_and_labels(folder):
    import pydicom

    table = rows(folder)
    assert [row["label_vector"].count(1) for row in table] == [0, 2, 0]
    assert [row["manufacturer"] for row in table] == ["CANON", "PHILIPS", "FUJIFILM"]
    spacings = [row["image_facts"][0]["spacing_mm"] for row in table]
    assert spacings == [[0.16, 0.16], None, None]  # RG1 writes 0.000\0.000, RG3 none
    for row, name in zip(table, FILMS, strict=True):
        dataset = pydicom.dcmread(folder / "films" / name)
        assert row["study_id"] == keyed_id(KEY, "study", dataset.StudyInstanceUID)
        picture = np.asarray(Image.open(io.BytesIO(row["images"][0]["bytes"])))
        assert picture.shape == (dataset.Rows, dataset.Columns)
        assert picture.std() > 20  # a film, not a blank


def texts_of(dataset):
    """Every text of a header but those that are published on purpose; short ones are in any file by chance."""
    import pydicom

    for element in dataset.iterall():
        if element.VR in TEXT_VRS and element.keyword not in PUBLISHED:
            values = element.value if isinstance(element.value, pydicom.multival.MultiValue) else [element.value]
            for value in values:
                text = value.decode("latin-1").strip("\0 ") if isinstance(value, bytes) else str(value).strip()
                if len(text) > 5:
                    yield text


def test_no_text_of_a_real_header_is_in_the_folder(folder):
    import pydicom

    texts = {text for name in FILMS for text in texts_of(pydicom.dcmread(folder / "films" / name))}
    assert len(texts) >= 50
    values = repr(rows(folder))
    contents = [path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()]
    leaked = [text for text in texts if text in values or any(text.encode("latin-1") in data for data in contents)]
    assert leaked == []
