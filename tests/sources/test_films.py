"""Films with unusable or unusual display settings: left out, shown another way, or listed by `build`."""

import json
import re
import shutil

import numpy as np
import pytest

from reveal_bench.dataset.validate import validate_folder
from reveal_bench.files import FILMS
from reveal_bench.kinds.findings.records import read_studies
from reveal_bench.reports.dataset import render_report
from reveal_bench.sources.source import BuildError
from tests.cli.test_score import call
from tests.reports.html_page import HtmlPage
from tests.sources.reveal_trees import write_film, write_tree


def test_a_film_that_cannot_be_decoded_is_left_out_and_its_study_stays(tmp_path):
    root = write_tree(tmp_path / "set")
    broken = {"RescaleSlope": "0", "RescaleIntercept": "1"}
    write_film(root / "b" / "3", "1.2.2", 2, view="LL", **broken)
    write_film(root / "c" / "4.dicom", "1.2.3", view="PA", WindowCenter=9000, WindowWidth=10)  # 7 is below: black
    arguments = ["build", root, "--id-key", tmp_path / "key", "--out", tmp_path / "out", "--log", tmp_path / "log"]
    refused = call(*arguments, expect=1).stderr
    assert "b/3:" in refused
    assert "RescaleSlope must not be 0" in refused
    done = call(*arguments, "--keep-going")
    studies = read_studies(tmp_path / "out", "test")
    assert [len(study.images) for study in studies] == [1, 1, 1]
    assert [image.view for image in studies[1].images] == ["AP"]
    assert re.search(r"left out: b/3:\S+: `picture` must be readable, got RescaleSlope must not be 0", done.stderr)
    assert "voi window 1 of 1 LINEAR: every pixel is black, and no other way shows more" in done.stderr
    assert re.search(r"3 pictures may show nothing: .*c/4\.dicom \(every pixel is black\)", done.stderr)
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {entry["file"]: entry["fault"] for entry in log if entry["what"] == "picture"} == {
        "a/1.dcm": "every pixel is black", "a/2.dcm": "every pixel is black", "c/4.dicom": "every pixel is black",
    }  # fmt: skip
    again = call(*arguments, "--keep-going", "--overwrite")
    assert "3 pictures may show nothing" in again.stderr
    # the dataset is that of a download without the broken film, except for its record of what was left out
    (root / "b" / "3").unlink()
    call(*arguments[:-3], tmp_path / "without")
    sums = [json.loads((tmp_path / name / "CHECKSUMS.json").read_text())["files"] for name in ("out", "without")]
    assert {name for name, _ in sums[0].items() ^ sums[1].items()} == {"manifest/films.json", "croissant.json"}


def test_the_report_counts_what_build_printed_and_names_no_file_or_patient(tmp_path):
    root, vault = write_tree(tmp_path / "set"), tmp_path / "vault"
    ramp = np.tile(np.arange(100, 4000, 400, dtype=np.uint16), (8, 1))
    odd = {"patient": "DOE^JOHN", "PresentationLUTShape": "INVERSE", "VOILUTFunction": "DOE", "WindowCenter": "2000"}
    write_film(root / "a" / "1.dcm", "1.2.1", pixels=ramp, WindowWidth="3600", **odd)
    write_film(
        root / "a" / "2.dcm",
        "1.2.2",
        pixels=ramp[:, ::-1].copy(),
        WindowCenter="60000",
        WindowWidth="10",
        BodyPartExamined="HAND",
        view="",
    )
    shutil.copy(root / "a" / "2.dcm", root / "a" / "DOE.dcm")
    write_film(root / "c" / "4.dicom", "1.2.3", view="PA", RescaleSlope="0", RescaleIntercept="1")
    arguments = ["build", root, "--id-key", tmp_path / "key", "--out", tmp_path / "out", "--holdout", vault]
    printed = call(*arguments, "--keep-going").stderr
    page = HtmlPage(render_report(tmp_path / "out"))
    counts = {note: n for n, note in re.findall(r"warning: (\d+) pictures?, such as \S+: (.*)", printed)}
    counts["may show nothing"] = re.search(r"(\d+) pictures? may show nothing", printed)[1]
    assert len(counts) == 8
    assert counts["the view is unknown: no known ViewPosition, code or orientation"] == "1"
    assert counts["BodyPartExamined is HAND, not CHEST; it is often wrong"] == "1"
    table = page.cells[page.cells.index("Note") + 2 :]
    shown = dict(zip(table[::2], table[1::2], strict=False))
    # the value of VOILUTFunction is printed to the maintainer, but the page may be published
    assert any("got DOE" in note for note in counts)
    assert {note.partition(", got")[0]: n for note, n in counts.items()}.items() <= shown.items()
    assert shown["unreadable picture"] == "1"
    assert len(re.findall("left out: ", printed)) == 1
    assert shown["set aside: duplicate"] == "1"
    assert "set aside: a/DOE.dcm: a duplicate: the same SOPInstanceUID and pixels" in printed
    assert len([one for one in page.all("img") if "radiograph" in one["alt"]]) >= 3
    record = (tmp_path / "out" / FILMS).read_text()
    assert not re.search(r"DOE|\.dcm|1\.2\.|P3", record)
    assert validate_folder(tmp_path / "out", holdout=vault, load=False) == []
    (tmp_path / "out" / FILMS).write_text(record.replace("unreadable picture", "unreadable picture: DOE/1.dcm"))
    with pytest.raises(BuildError, match="must be a text of `build`, without a value or a file, got unreadable pict"):
        render_report(tmp_path / "out")
