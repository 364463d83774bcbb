"""Films with unusable or unusual display settings: left out, shown another way, or listed by `build`."""

import json
import re

from reveal_bench.kinds.findings.records import read_studies
from tests.cli.test_score import call
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
    # the dataset is that of a download without the broken film
    (root / "b" / "3").unlink()
    call(*arguments[:-3], tmp_path / "without")
    sums = [(tmp_path / name / "CHECKSUMS.json").read_bytes() for name in ("out", "without")]
    assert sums[0] == sums[1]
