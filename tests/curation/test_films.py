"""The sample asks no reader to read a study that cannot be built: eight studies, two without a usable film."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.curation import films as films_module
from reveal_bench.curation.films import CACHE_NAME, FilmPool
from reveal_bench.curation.folder import CurationError, CurationFolder
from reveal_bench.curation.sample import sample
from reveal_bench.curation.tables import Sampled, Suggestion, read_table
from reveal_bench.dataset.row_pool import WorkerPool
from reveal_bench.dicom import write_dicom
from tests.cli.test_score import call
from tests.curation.made_folder import done

FILM = np.add.outer(np.arange(64) * 28, np.arange(64) * 29).astype(np.uint16) + 200
BLACK = np.zeros((64, 64), np.uint16)
CUT = "films/2a.dcm: truncated: pixel data of 1,000 bytes instead of 8,192"
BLANK = "films/5a.dcm: every pixel is black"


def write_film(root: Path, name: str, pixels: np.ndarray = FILM, *, cut: bool = False, **attributes: object) -> None:
    """Write a film of the study that begins the name; a film that is `cut` lacks most of its pixels."""
    path = root / "films" / f"{name}.dcm"
    path.parent.mkdir(exist_ok=True, parents=True)
    ids = {"StudyInstanceUID": f"1.2.{name[0]}", "SOPInstanceUID": f"1.2.{name[0]}.{ord(name[1])}", "Modality": "DX"}
    write_dicom(path, pixels, {**ids, **attributes}, bits_stored=12)
    if cut:
        path.write_bytes(path.read_bytes()[: -pixels.nbytes + 1000])


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Studies 1 to 8: the film of 2 is truncated, both films of 5 are black, and 3 has a bad film and a good one."""
    root = tmp_path / "pool"
    for number in (1, 4, 6, 7, 8):
        write_film(root, f"{number}a")
    write_film(root, "2a", cut=True)
    write_film(root, "3a", cut=True)
    write_film(root, "3b")
    write_film(root, "5a", BLACK)
    write_film(root, "5b", BLACK, ViewPosition="LATERAL")
    return root


@pytest.fixture
def folder(tmp_path: Path) -> CurationFolder:
    """A curation of these studies, of a patient each; every study has one label."""
    folder = CurationFolder.create(tmp_path / "cur", name="test")
    rows = [Suggestion(f"1.2.{i}", f"p{i}", (), ("COPD",), "ok", "rules") for i in range(1, 9)]
    done(folder, "extract", "suggestions.parquet", rows, Suggestion)
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each film is read."""
    counts: Counter[str] = Counter()
    fault_of = films_module.film_fault

    def count(picture: films_module.PictureFile) -> str:
        counts[picture.path.stem] += 1
        return fault_of(picture)

    monkeypatch.setattr(films_module, "film_fault", count)
    return counts


def set_aside(folder: CurationFolder) -> dict[str, str]:
    lines = map(json.loads, folder.path("set_aside.jsonl").read_text(encoding="utf-8").splitlines())
    return {line.get("study_id") or line["file"]: line["reason"] for line in lines}


@pytest.mark.parametrize("workers", [1, 2])
def test_studies_without_a_usable_film_are_set_aside(pool: Path, folder: CurationFolder, workers: int) -> None:
    counts = sample(folder, strata={1: 8}, films=FilmPool(pool, workers=workers)).counts
    drawn = [one.study_id for one in read_table(folder.path("sample.parquet"), Sampled)]
    assert drawn == ["1.2.1", "1.2.3", "1.2.4", "1.2.6", "1.2.7", "1.2.8"]
    assert set_aside(folder) == {"1.2.2": CUT, "1.2.5": f"{BLANK}; films/5b.dcm: every pixel is black"}
    names = ("films_checked", "unusable", "set_aside", "candidates", "sampled", "short")
    assert [counts[name] for name in names] == [8, 2, 0, 6, 6, 2]


def test_studies_that_no_build_takes_are_set_aside_with_the_reason(pool: Path, folder: CurationFolder) -> None:
    write_film(pool, "1b", BurnedInAnnotation="YES")
    (pool / "films" / "4a.dcm").write_bytes(b"not DICOM")
    for path in (pool / "films").glob("6*"):
        path.unlink()
    sample(folder, strata={1: 8}, films=FilmPool(pool))
    reasons = set_aside(folder)
    assert reasons.keys() == {"1.2.1", "1.2.2", "1.2.4", "1.2.5", "1.2.6", "films/4a.dcm"}
    assert reasons["1.2.1"].startswith("films/1b.dcm: `BurnedInAnnotation` must not be YES")
    assert reasons["1.2.4"] == reasons["1.2.6"]
    assert reasons["1.2.6"].startswith("no film has this StudyInstanceUID; unreadable files: films/4a.dcm (")


def test_one_uid_with_two_pictures_is_named_by_sample_and_in_the_log_of_build(
    pool: Path, folder: CurationFolder
) -> None:
    write_film(pool, "1b", FILM.T // 2, SOPInstanceUID="1.2.1.97")
    (pool / "labels.csv").write_text("study,labels\n1.2.1,COPD\n")
    mapping = (
        "table: labels.csv\nstudy_key: {column: study}\nlabels: {list: {column: labels}}\nother_studies: left out\n"
    )
    (pool / "mapping.yaml").write_text(mapping)
    told = call("curate", "sample", folder.root, "--strata", "1:8", "--images", pool, "--workers", 1).stderr
    assert "`build` stops at 1 file unless --keep-going leaves them out; the reasons are in" in told
    *_, entry = map(json.loads, folder.path("set_aside.jsonl").read_text().splitlines())
    conflict = "duplicate of films/1a.dcm: the same SOPInstanceUID but different pixels"
    assert entry["file"] == "films/1b.dcm"
    assert entry["reason"].startswith(conflict)

    words = ("build", pool, "--out", pool.parent / "out", "--id-key", pool.parent / "key")
    assert conflict in call(*words, expect=1).stderr
    log = pool.parent / "log.jsonl"
    call(*words, "--keep-going", "--log", log)
    (problem,) = (one for one in map(json.loads, log.read_text().splitlines()) if one["what"] == "problem")
    assert problem["file"] == "films/1b.dcm"
    assert problem["value"].startswith(conflict)


def test_an_interrupted_check_goes_on(pool: Path, folder: CurationFolder, read: Counter[str]) -> None:
    def stop(n: int, total: int) -> None:
        if n == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample(folder, strata={1: 8}, films=FilmPool(pool), progress=stop)
    assert read == Counter(["1a", "2a", "3a", "3b", "4a"])  # 3a is truncated
    with folder.path(CACHE_NAME).open("a", encoding="utf-8") as file:
        file.write("5b0f")  # as after a kill
    sample(folder, strata={1: 8}, films=FilmPool(pool))
    assert read == Counter(["1a", *2 * ["2a", "3a"], "3b", "4a", "5a", "5b", "6a", "7a", "8a"])  # only bad ones again
    write_film(pool, "2a")
    with pytest.raises(CurationError, match="sample was already done, films has changed: do it again with --redo"):
        sample(folder, strata={1: 8}, films=FilmPool(pool))
    read.clear()
    record = sample(folder, strata={1: 7}, films=FilmPool(pool), redo=True)
    assert read == Counter(["2a", "3a", "5a", "5b"])
    assert (record.counts["unusable"], record.counts["sampled"]) == (1, 7)


def test_a_film_whose_process_was_killed_is_read_again(
    pool: Path, folder: CurationFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killing:
        killing.setattr(WorkerPool, "ask", lambda *_: None)
        assert sample(folder, strata={1: 8}, films=FilmPool(pool)).counts["unusable"] == 8
    record = sample(folder, strata={1: 7}, films=FilmPool(pool), redo=True)
    assert (record.counts["unusable"], record.counts["sampled"]) == (2, 6)


def test_only_studies_that_may_be_drawn_are_read(pool: Path, folder: CurationFolder, read: Counter[str]) -> None:
    rows = [Suggestion(f"1.2.{i}", "p", (), ("COPD",) if i < 3 else (), "ok", "rules") for i in range(1, 9)]
    done(folder, "extract", "suggestions.parquet", rows, Suggestion, redo=True)
    record = sample(folder, strata={1: 8}, films=FilmPool(pool))
    assert (read, record.counts["sampled"]) == (Counter(["1a", "2a"]), 1)  # 1.2.2, of the same patient, is not chosen


def test_a_folder_of_other_studies_is_refused(pool: Path, folder: CurationFolder) -> None:
    with pytest.raises(CurationError, match=r"`folder` of the films below .* got none of 8, the first of them '1.2.1'"):
        sample(folder, strata={1: 8}, films=FilmPool(pool, "folder"))
    with pytest.raises(ValueError, match="`study_key` must be one of StudyInstanceUID, "):
        sample(folder, strata={1: 8}, films=FilmPool(pool, "AccessionNumber"))


def test_pictures_are_checked_if_there_is_no_dicom(tmp_path: Path, folder: CurationFolder) -> None:
    from PIL import Image

    for number in range(1, 9):
        path = tmp_path / "pictures" / f"1.2.{number}" / "a.png"
        path.parent.mkdir(parents=True)
        Image.fromarray((FILM // 16).astype(np.uint8) * (number != 5)).save(path)
    path = tmp_path / "pictures" / "1.2.2" / "a.png"
    path.write_bytes(path.read_bytes()[:-40])
    sample(folder, strata={1: 8}, films=FilmPool(tmp_path / "pictures", "folder"))
    reasons = set_aside(folder)
    assert reasons.pop("1.2.5") == "1.2.5/a.png: every pixel is black"
    assert reasons.keys() == {"1.2.2"}
    assert reasons["1.2.2"].startswith("1.2.2/a.png: ")


def test_the_command_says_what_was_checked(pool: Path, folder: CurationFolder, tmp_path: Path) -> None:
    words = ("curate", "sample", folder.root, "--strata", "1:8")
    assert "films were not checked: pass their folder as --images" in call(*words).stderr
    (tmp_path / "tables").mkdir()
    said = call(*words, "--redo", "--images", tmp_path / "tables").stderr
    assert f"films were not checked: {tmp_path / 'tables'} has none" in said
    for redo in ("--redo", "--min-per-label=1"):  # the second time, the step is already done
        said = call(*words, redo, "--images", pool, "--workers", 1).stderr
        listed = folder.path("set_aside.jsonl")
        assert f"2 of 8 studies cannot be built and are set aside; the reasons are in {listed}" in said
