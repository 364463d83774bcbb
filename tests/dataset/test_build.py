"""Dataset folders: they hold exactly the records, and are complete or absent."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.layout import ShardWriter
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.kinds.folder import read_folder_info, read_rows
from reveal_bench.kinds.localization.records import read_localization, read_manifest
from reveal_bench.sources.source import BuildError, Problem
from tests.conftest import files_of
from tests.dataset.card_folders import rows_of


def png(width=30, height=20, value=90):
    buffer = io.BytesIO()
    Image.new("L", (width, height), value).save(buffer, "PNG")
    return buffer.getvalue()


def pictured(record, i):
    data = png(value=i)
    status = {**record(i).label_status, "Pneumothorax": 1}
    return replace(
        record(i),
        label_status=status,
        image=data,
        image_name=f"{i}.png",
        source_sha256=sha256(data).hexdigest(),
        pixel_sha256=sha256(bytes([i]) * 600).hexdigest(),
        pixel_pipeline="original bytes",
        spacing_mm=(0.139, 0.1988),
        spacing_source="imager_pixel_spacing",
        view_raw="AP",
        missing=("Pneumothorax",),
    )


def test_records_come_back_as_they_went_in(tmp_path, benchmark, record):
    records = [pictured(record, i) for i in range(5)]
    build_folder({"test": iter(records)}, tmp_path / "out", benchmark)
    back = read_localization(tmp_path / "out", "test")
    assert back == [replace(r, image=None, image_name=None) for r in records]
    rows = rows_of(tmp_path / "out", "localization/")
    assert [row["image"]["bytes"] for row in rows] == [r.image for r in records]
    assert validate_folder(tmp_path / "out") == []


def test_manifest_lists_the_questions(tmp_path, benchmark, record):
    empty = record(1, annotations=(), label_status=dict.fromkeys(benchmark.findings, 0))
    build_folder({"test": [record(0), empty]}, tmp_path / "present", benchmark, pixels="withhold")
    build_folder({"test": [record(0), empty]}, tmp_path / "all", benchmark, pixels="withhold", asks="all")
    assert read_manifest(tmp_path / "present", "test").asked_pairs() == [("img0", "Edema")]
    assert len(read_manifest(tmp_path / "all", "test").asked_pairs()) == 20
    info = read_folder_info(tmp_path / "present")
    assert info.splits["test"] == {"n_images": 2, "n_patients": 2, "n_asked": 1, "references": "public"}


def test_withheld_pixels_are_nowhere(tmp_path, benchmark, record):
    build_folder({"test": [pictured(record, 0)]}, tmp_path / "out", benchmark, pixels="withhold")
    back = read_localization(tmp_path / "out", "test")[0]
    assert back.pixel_pipeline == "withheld"
    assert not any(png(value=0) in content for content in files_of(tmp_path / "out").values())


def test_same_records_give_the_same_bytes(tmp_path, benchmark, record):
    for name in ("a", "b"):
        build_folder({"test": [pictured(record, i) for i in range(3)]}, tmp_path / name, benchmark)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_checksums_are_of_every_other_file(tmp_path, benchmark, record):
    build_folder({"test": [record(0)]}, tmp_path / "out", benchmark, pixels="withhold")
    files = files_of(tmp_path / "out")
    sums = json.loads(files.pop("CHECKSUMS.json"))["files"]
    assert sums == {name: sha256(content).hexdigest() for name, content in files.items()}
    assert list(sums) == sorted(sums)


def test_a_stranger_loads_it_offline(tmp_path, benchmark, record):
    records = [pictured(record, i) for i in range(6)]
    build_folder({"validation": records[:2], "test": records[2:]}, tmp_path / "out", benchmark, holdout=tmp_path / "p")
    script = """
import sys
from datasets import load_dataset
folder = sys.argv[1]
named = load_dataset(folder, "localization", split="released")
default = load_dataset(folder, split="released")
inputs = load_dataset(folder, "holdout_inputs", split="holdout")
assert "reveal_bench" not in sys.modules
assert named.features == default.features == inputs.features
print(len(named), named[0]["image"].size, named.features["view"].int2str(named[0]["view"]))
print(named.features["labels"].feature.int2str(named[0]["labels"]), len(inputs), inputs[0]["label_status"])
"""
    home = tmp_path / "home"
    environment = {"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out")],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "2 (30, 20) AP"
    assert second == "['Edema', 'Pneumothorax'] 2 None"


def test_a_build_interrupted_before_its_first_part_leaves_nothing(tmp_path, benchmark, record):
    def interrupted():
        yield record(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_folder({"test": interrupted()}, tmp_path / "out", benchmark, pixels="withhold", holdout=tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_overwrite_keeps_the_old_folder(tmp_path, benchmark, record):
    build_folder({"test": [record(0)]}, tmp_path / "out", benchmark, pixels="withhold")
    before = files_of(tmp_path / "out")
    with pytest.raises(BuildError, match="must exist when pixels are embedded"):
        build_folder({"test": [record(1)]}, tmp_path / "out", benchmark, overwrite=True)
    assert files_of(tmp_path / "out") == before
    build_folder({"test": [record(1)]}, tmp_path / "out", benchmark, pixels="withhold", overwrite=True)
    assert [r.image_id for r in read_localization(tmp_path / "out", "test")] == ["img1"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_all_problems_of_all_splits_come_together(tmp_path, benchmark, record):
    def broken():
        yield record(0)
        raise BuildError([Problem("x.json", 3, "counts", "must be whole", "half")])

    with pytest.raises(BuildError, match=r"4 problems:(.|\n)*x\.json:3: `counts` must be whole, got half") as caught:
        build_folder(
            {"a": broken(), "b": [record(0), record(2, view="UP"), record(3, label_status={"Oedema": 1})]},
            tmp_path / "out",
            benchmark,
            pixels="withhold",
        )
    assert [problem.row for problem in caught.value.problems] == [3, "img0", "img2", "img3"]
    assert [path.name for path in tmp_path.iterdir()] == [".out.building"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "banana"}, "`version` must be three numbers such as 1.2.3, got 'banana'"),
        ({"pixels": "blur"}, "`pixels` must be 'embed' or 'withhold', got 'blur'"),
        ({"records": {}}, "`records` must have at least one split"),
        ({"holdout": "out/private"}, "`holdout` must neither be inside `out`"),
        ({"holdout": "."}, "`holdout` must neither be inside `out`"),
        ({"holdout": "p", "holdout_split": "tset"}, r"`holdout_split` must be one of the splits \(test\), got 'tset'"),
        ({"holdout": "p", "holdout_fraction": 1.0}, r"`holdout_fraction` must be in \(0, 1\), got 1.0"),
        (
            {"records": {"all": [1]}},
            "`records` must have split names made of letters, digits and _, but not 'all', got 'all'",
        ),
        ({"records": {"te-st": [1]}}, "`records` must have split names .* got 'te-st'"),
        ({"records": {"test": []}}, "`records` must have at least one image"),
        ({"holdout": "p"}, "at least 2 patients to divide, got 1"),
    ],
)
def test_bad_arguments(tmp_path, benchmark, record, change, message):
    arguments = {"records": {"test": [record(0)]}, "pixels": "withhold", **change}
    if "holdout" in arguments:
        arguments["holdout"] = tmp_path / arguments["holdout"]
    with pytest.raises(ValueError, match=message):
        build_folder(arguments.pop("records"), tmp_path / "out", benchmark, **arguments)
    assert not (tmp_path / "out").exists()


def test_a_full_target_is_refused(tmp_path, benchmark, record):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="must be a new or empty folder unless `overwrite` is set"):
        build_folder({"test": [record(0)]}, tmp_path, benchmark, pixels="withhold")


def test_progress_is_reported_per_image(tmp_path, benchmark, record):
    seen = []
    build_folder(
        {"a": [record(0)], "b": [record(1), record(2)]},
        tmp_path / "out", benchmark, pixels="withhold", progress=lambda *step: seen.append(step),
    )  # fmt: skip
    assert seen == [("a", 1, 1, 0), ("b", 1, 2, 0), ("b", 2, 2, 0)]


def test_shards_by_size_and_groups_of_a_hundred(tmp_path):
    import pyarrow as pa

    schema = pa.schema({"image": pa.struct({"bytes": pa.binary()}), "annotations": pa.list_(pa.string())})
    writer = ShardWriter(tmp_path, "test", schema, max_shard_bytes=100 * 1000)
    for i in range(250):
        writer.add({"image": {"bytes": bytes([i]) * 1000}, "annotations": []})
    shards = writer.close()
    # 250 rows are groups of 100, 100 and 50; a group of 100 rows is 100 kB and fills a shard
    assert [path.name for path in shards] == [f"test-0000{i}-of-00003.parquet" for i in range(3)]
    assert [pq.read_metadata(path).num_rows for path in shards] == [100, 100, 50]
    assert [row["image"]["bytes"][0] for shard in shards for row in read_rows(shard)] == list(range(250))


def test_the_card_counts_what_was_built(tmp_path, benchmark, record):
    build_folder({"test": [record(0), record(1)]}, tmp_path / "out", benchmark, pixels="withhold", synthetic=True)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| `test` | 2 | 2 | 2 | 2 | public |" in card
    assert "| Edema | 2 | 100.0% | 2 | 2 | 0 | 2 |" in card
    assert "# Synthetic stand-in for CheXlocalize" in card
    assert "{{" not in card
    assert str(tmp_path) not in card


def broken_mask(record):
    annotation = replace(record.annotations[0], rle=replace(record.annotations[0].rle, counts="zz"))
    return replace(record, annotations=(annotation,))


def annotated(record, **changes):
    return replace(record, annotations=(replace(record.annotations[0], **changes),))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda r: annotated(r, area_px=13), "annotations[Edema, ground_truth].area_px"),
        (lambda r: annotated(r, bbox_xywh=(2, 5, 3, 5)), "annotations[Edema, ground_truth].bbox_xywh"),
        (lambda r: replace(r, width=31), "annotations[Edema, ground_truth].rle.size"),
        (lambda r: replace(r, missing=("Edema",)), "missing"),
        (lambda r: replace(r, points=(replace(r.points[0], x=30.0),)), "points"),
        (lambda r: replace(r, annotations=r.annotations * 2), "annotations"),
    ],
)
def test_validate_finds_wrong_references(tmp_path, benchmark, record, change, field):
    build_folder({"test": [change(record(0)), record(1)]}, tmp_path / "out", benchmark, pixels="withhold")
    problems = validate_folder(tmp_path / "out", load=False)
    assert {problem.row for problem in problems} == {"img0"}
    assert field in {problem.field for problem in problems}


def test_a_malformed_mask_stops_the_build(tmp_path, benchmark, record):
    with pytest.raises(
        BuildError,
        match=r"img0: `record` must be valid for the benchmark, got mask 0: `counts` may only contain",
    ):
        build_folder({"test": [broken_mask(record(0)), record(1)]}, tmp_path / "out", benchmark, pixels="withhold")


def test_validate_finds_wrong_pictures(tmp_path, benchmark, record):
    small = replace(pictured(record, 0), image=png(15, 10))
    build_folder({"test": [small, pictured(record, 1)]}, tmp_path / "out", benchmark)
    places = {(problem.row, problem.field) for problem in validate_folder(tmp_path / "out", load=False)}
    assert places == {("img0", "image size"), ("img0", "source_sha256"), ("img0", "pixel_sha256")}


def test_validate_finds_changed_lost_and_added_files(tmp_path, benchmark, record):
    build_folder({"test": [record(0)], "more": [record(1)]}, tmp_path / "out", benchmark, pixels="withhold")
    (tmp_path / "out" / "extra.txt").write_text("?")
    (tmp_path / "out" / "README.md").write_text("---\ndataset_info: []\n---\n")
    (tmp_path / "out" / "localization" / "more-00000-of-00001.parquet").unlink()
    problems = validate_folder(tmp_path / "out", load=False)
    assert {
        ("README.md", None, "sha256"),
        ("CHECKSUMS.json", "extra.txt", "files"),
        ("CHECKSUMS.json", "localization/more-00000-of-00001.parquet", "files"),
        ("manifest/benchmark.json", "more", "references"),
    } <= {(problem.file, problem.row, problem.field) for problem in problems}


def test_validate_finds_a_patient_in_two_splits(tmp_path, benchmark, record):
    records = {"a": [record(0, patient="p")], "b": [record(1, patient="p")]}
    build_folder(records, tmp_path / "out", benchmark, pixels="withhold")
    problems = validate_folder(tmp_path / "out", load=False)
    assert [(problem.row, problem.field) for problem in problems] == [("p", "patient_id")]


def test_validate_finds_what_does_not_load(tmp_path, benchmark, record):
    build_folder({"test": [record(0)]}, tmp_path / "out", benchmark, pixels="withhold")
    card = tmp_path / "out" / "README.md"
    card.write_text(card.read_text().replace("num_examples: 1", "num_examples: 2"))
    problems = validate_folder(tmp_path / "out")
    places = {(problem.file, problem.row, problem.field) for problem in problems}
    assert {("README.md", "localization", "test"), ("README.md", "masks", "test")} < places
