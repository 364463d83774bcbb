"""A part of a tree of DICOM files becomes a dataset: the table is beside its mapping, other studies are left out."""

import shutil

import pytest

from reveal_bench.sources.reveal_cxr import read
from reveal_bench.sources.source import BuildError
from tests.sources.conftest import N
from tests.sources.reveal_trees import KEY


@pytest.fixture
def subset(reveal_download, tmp_path):
    """A table of the first five studies with its mapping, apart from the images."""
    folder = tmp_path / "curation"
    folder.mkdir()
    lines = (reveal_download / "labels.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "labels.csv").write_text("".join(lines[:6]), encoding="utf-8")
    mapping = (reveal_download / "mapping.yaml").read_text(encoding="utf-8")
    (folder / "mapping.yaml").write_text(mapping + "other_studies: left out\n", encoding="utf-8")
    images = tmp_path / "images"
    shutil.copytree(reveal_download / "images", images / "images")
    return folder, images


def test_a_table_beside_its_mapping_takes_a_part_of_the_images(subset, reveal_download):
    folder, images = subset
    source_data = read(images, mapping=folder / "mapping.yaml", id_key=KEY)
    whole = read(reveal_download, id_key=KEY)
    assert [r.labels for r in source_data.splits["test"]] == [r.labels for r in whole.splits["test"]][:5]
    assert f"{N - 5} studies have no row and are left out (`other_studies` in the mapping)" in source_data.warnings


def test_studies_without_a_row_are_a_problem_unless_the_mapping_leaves_them_out(subset):
    folder, images = subset
    path = folder / "mapping.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("left out", "problem"), encoding="utf-8")
    with pytest.raises(BuildError, match=rf"(?s){N - 5} problems.*must have a row in labels\.csv"):
        read(images, mapping=path, id_key=KEY)
    path.write_text(path.read_text(encoding="utf-8").replace(": problem", ": ignored"), encoding="utf-8")
    with pytest.raises(BuildError, match="`other_studies` must be 'problem' or 'left out', got ignored"):
        read(images, mapping=path, id_key=KEY)


def test_problems_of_an_omitted_study_do_not_matter(subset, truth):
    import pydicom

    folder, images = subset
    for study, outcome in ((truth[10], None), (truth[2], "BurnedInAnnotation")):
        path = images / study["images"][0]["file"]
        film = pydicom.dcmread(path, force=True)
        film.BurnedInAnnotation = "YES"
        film.save_as(path)
        if outcome is None:
            assert len(read(images, mapping=folder / "mapping.yaml", id_key=KEY).splits["test"]) == 5
        else:
            with pytest.raises(BuildError, match=outcome):
                read(images, mapping=folder / "mapping.yaml", id_key=KEY)


def test_of_two_tables_the_one_beside_the_mapping_is_meant(subset, reveal_download):
    folder, images = subset
    shutil.copy(reveal_download / "labels.csv", images)
    assert len(read(images, mapping=folder / "mapping.yaml", id_key=KEY).splits["test"]) == 5
