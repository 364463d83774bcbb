"""Refusals to publish: every rule with a folder that breaks it.

====================================================  =====================================
a folder that                                          is refused for
====================================================  =====================================
is real data of a restricted source, to be public      benchmark
is a holdout                                           license_name
is synthetic and does not say so                       notice
holds a link, hidden, half-written or unlisted file    files
holds code                                             files
holds references of a private split                    the column
holds an id or file hash of the holdout elsewhere      the column
is checked against the holdout of something else       benchmark, ids
is to be public and was not compared with its holdout  holdout
fails validation                                       what `validate_folder` says
has no usable version, or goes to no usable name       tag, repo_id
====================================================  =====================================
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.dataset.hub_checks import PublishRefusedError, prepare, prepare_holdout
from reveal_bench.kinds.localization.records import LocalizationRecord, read_localization
from reveal_bench.sources.pictures import ORIGINAL
from tests.conftest import files_of
from tests.dataset.hub.conftest import Folders, build

REPO = "org/chexlocalize"


def reasons(folder: Path, repo_id: str = REPO, **options: object) -> str:
    with pytest.raises(PublishRefusedError, match="is not published, for ") as caught:
        prepare(folder, repo_id, **{"private": False, "load": False, **options})  # type: ignore[arg-type]
    assert len(caught.value.problems) >= 1
    return "\n".join(map(str, caught.value.problems))


def seal(folder: Path) -> None:
    """Write new checksums, as an attacker would to hide a change."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files_of(folder).items()}
    sums.pop("CHECKSUMS.json")
    (folder / "CHECKSUMS.json").write_text(json.dumps({"algorithm": "sha256", "files": sums}))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def change_rows(path: Path, **values: object) -> None:
    """Set columns of the first row."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0].update(values)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def test_a_good_folder_lists_what_was_checked(folders: Folders) -> None:
    steps: list[tuple[str, int, int | None]] = []
    publication = prepare(
        folders.public, REPO, private=False, holdout=folders.vault, progress=lambda *s: steps.append(s)
    )
    files = files_of(folders.public)
    assert publication.files == {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    assert publication.n_bytes == sum(map(len, files.values()))
    assert (publication.tag, publication.private, publication.is_holdout) == ("v1.0.0", False, False)
    assert [step for step in steps if step[0] == "rules"] == [("rules", n, 5) for n in range(1, 6)]
    vault = prepare_holdout(folders.vault, "vault/refs", load=False)
    assert (vault.private, vault.is_holdout) == (True, True)


def test_restricted_data_in_public(tmp_path: Path) -> None:
    real = build(tmp_path / "real", synthetic=False)
    text = reasons(real.public)
    assert "`benchmark` must be openly licensed for a public repository" in text
    assert "CheXlocalize forbid redistribution, got chexlocalize, restricted" in text
    assert prepare(real.public, REPO, private=True, load=False).private


def test_a_benchmark_of_unknown_licence(copied: Folders) -> None:
    edit(copied.public / "manifest/benchmark.json", '"benchmark": "chexlocalize"', '"benchmark": "homemade"')
    seal(copied.public)
    text = reasons(copied.public, private=True)
    assert "`benchmark` must be one of chexlocalize, " in text
    assert "because only their licences are known, got 'homemade'" in text


def test_a_holdout_folder(folders: Folders, copied: Folders) -> None:
    assert "`license_name` must not belong to a private holdout" in reasons(folders.vault, private=True)
    # the same references under another card
    (copied.vault / "README.md").write_bytes((folders.public / "README.md").read_bytes())
    seal(copied.vault)
    text = reasons(copied.vault, private=True)
    assert "`annotations` must be empty, because the references of its split are private, got a value in 8 rows" in text
    assert (
        "`source_sha256` must be empty, because the references of its split are private, got a value in 8 rows"
    ) in text


def test_a_public_folder_as_a_holdout(folders: Folders) -> None:
    with pytest.raises(PublishRefusedError, match=r"`references` must be 'private' in the folder of a holdout"):
        prepare_holdout(folders.public, "vault/refs", load=False)
    with pytest.raises(PublishRefusedError, match=r"`license_name` must be 'private' in the card of a holdout"):
        prepare_holdout(folders.public, "vault/refs", load=False)


def test_synthetic_data_that_do_not_say_so(copied: Folders) -> None:
    edit(copied.public / "README.md", "SYNTHETIC", "Data")
    seal(copied.public)
    assert "README.md: `notice` must contain the word SYNTHETIC" in reasons(copied.public)


@pytest.mark.parametrize(
    ("name", "is_listed", "got"),
    [
        ("notes.txt", False, "a file that is not listed"),
        ("localization/extra.bin", False, "a file that is not listed"),
        (".DS_Store", True, "a hidden file or folder"),
        (".cache/x", False, "a hidden file or folder"),
        ("localization/.released-00000.part", True, "a hidden file or folder"),
        ("localization/released.part", True, "a half-written file"),
        ("chexlocalize.py", True, "a script with the repository's name, which breaks load_dataset"),
        ("load.py", True, "code"),
    ],
)
def test_stray_files(copied: Folders, name: str, is_listed: bool, got: str) -> None:
    path = copied.public / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    if is_listed:
        seal(copied.public)
    text = reasons(copied.public)
    place = ".cache" if name == ".cache/x" else name
    assert f"CHECKSUMS.json:{place}: `files` must be regular data files that CHECKSUMS.json lists, got {got}" in text


def test_links_and_other_things(copied: Folders, folders: Folders) -> None:
    card = copied.public / "README.md"
    card.unlink()
    card.symlink_to(folders.public / "README.md")
    (copied.public / "more").symlink_to(folders.vault)
    os.mkfifo(copied.public / "pipe")
    text = reasons(copied.public)
    for name in ("README.md", "more"):
        assert (
            f"CHECKSUMS.json:{name}: `files` must be regular data files that CHECKSUMS.json lists, got a link"
        ) in text
    assert "CHECKSUMS.json:pipe: `files` must be regular data files that CHECKSUMS.json lists, got neither" in text


def test_more_files_than_one_commit_takes(copied: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reveal_bench.dataset.hub_checks.MAX_FILES", 5)
    assert "`files` must be fewer than 5, the limit of a commit: write larger shards" in reasons(copied.public)


@pytest.mark.parametrize("with_holdout", [False, True])
def test_an_id_of_the_holdout_in_a_public_table(copied: Folders, with_holdout: bool) -> None:
    record = read_localization(copied.vault, "holdout")[0]
    change_rows(copied.public / "localization/released-00000-of-00001.parquet", image_id=record.image_id)
    seal(copied.public)
    text = reasons(copied.public, holdout=copied.vault if with_holdout else None)
    place = f"localization/released-00000-of-00001.parquet:{record.image_id}"
    assert f"{place}: `image_id` must not be in the holdout, got {record.image_id}" in text


def test_ids_are_found_in_tables_of_any_name(copied: Folders) -> None:
    record = read_localization(copied.vault, "holdout")[0]
    (copied.public / "ratings").mkdir()
    table = pa.table({"prior_image_ids": [["a", record.image_id]], "study_id": [record.study_id]})
    pq.write_table(table, copied.public / "ratings/notes.parquet")
    seal(copied.public)
    text = reasons(copied.public)
    place = f"ratings/notes.parquet:{record.study_id}"
    assert f"{place}: `prior_image_ids` must not be in the holdout, got {record.image_id}" in text
    assert f"{place}: `study_id` must not be in the holdout, got {record.study_id}" in text


def test_a_patient_and_a_file_hash_of_the_holdout(copied: Folders) -> None:
    record = read_localization(copied.vault, "holdout")[0]
    shard = copied.public / "localization/validation-00000-of-00001.parquet"
    change_rows(shard, patient_id=record.patient_id, source_sha256=record.source_sha256)
    seal(copied.public)
    text = reasons(copied.public, holdout=copied.vault)
    assert f"`patient_id` must not be in the holdout, got {record.patient_id}" in text
    assert (
        f"`source_sha256` must not contain the holdout's references, got {(record.source_sha256 or '?')[:40]}"
    ) in text


def test_the_picture_of_a_holdout_under_another_id(copied: Folders) -> None:
    picture = b"file bytes of a held-out picture"
    sha256 = hashlib.sha256(picture).hexdigest()
    change_rows(copied.vault / "localization/holdout-00000-of-00001.parquet", source_sha256=sha256)
    change_rows(
        copied.public / "localization/validation-00000-of-00001.parquet", image={"bytes": picture, "path": "x.jpg"}
    )
    text = reasons(copied.public, holdout=copied.vault)
    assert "`image` must not show a picture of the holdout, got the file of " in text


def test_inputs_of_a_holdout_with_a_label(copied: Folders) -> None:
    rows = pq.read_table(copied.vault / "localization/holdout-00000-of-00001.parquet")
    (copied.public / "holdout_inputs").mkdir()
    pq.write_table(rows, copied.public / "holdout_inputs/holdout-00000-of-00001.parquet")
    seal(copied.public)
    text = reasons(copied.public)
    name = "holdout_inputs/holdout-00000-of-00001.parquet"
    assert f"{name}: `label_status` must be empty, because the references of its split are private" in text
    assert f"{name}: `source_sha256` must be empty, because the references of its split are private" in text
    assert f"{name}: `image_id`" not in text  # ids of inputs are public


def test_pictures_of_a_holdout_are_inputs(tmp_path: Path) -> None:
    def with_picture(record: LocalizationRecord) -> LocalizationRecord:
        picture = io.BytesIO()
        shade = int(hashlib.sha256(record.image_id.encode()).hexdigest()[:2], 16)
        grey = Image.new("L", (record.width, record.height), shade)
        grey.paste(255 - shade, (0, 0, record.width // 2, record.height // 3))
        grey.save(picture, "png")
        pixels = {"image": picture.getvalue(), "image_name": f"{record.image_id}.png", "pixel_pipeline": ORIGINAL}
        return replace(record, **pixels, source_sha256=hashlib.sha256(picture.getvalue()).hexdigest())

    folders = build(tmp_path, pixels="embed", change=with_picture)
    publication = prepare(folders.public, REPO, private=False, holdout=folders.vault, load=False)
    assert "holdout_inputs/holdout-00000-of-00001.parquet" in publication.files


def test_a_column_nobody_has_heard_of_counts_as_a_reference(copied: Folders) -> None:
    (copied.public / "extra_inputs").mkdir()
    table = pa.table({"image_id": ["a", "b"], "radiologist_says": ["", "edema"], "agreement": [None, 1]})
    pq.write_table(table, copied.public / "extra_inputs/holdout-00000-of-00001.parquet")
    seal(copied.public)
    text = reasons(copied.public)
    assert (
        "`radiologist_says` must be empty, because the references of its split are private, got a value in 1 row"
    ) in text
    assert "`agreement` must be empty, because the references of its split are private, got a value in 1 row" in text


def test_a_public_repository_needs_the_holdout_to_compare_with(folders: Folders) -> None:
    text = reasons(folders.public)
    assert text == (
        "manifest/benchmark.json:holdout: `holdout` must be given before the folder becomes public, got "
        "the holdout was not compared: give --holdout"
    )
    assert prepare(folders.public, REPO, private=True, load=False).private


def test_the_holdout_of_something_else(folders: Folders, copied: Folders) -> None:
    edit(copied.vault / "manifest/benchmark.json", '"chexlocalize"', '"chestx-det"')
    change_rows(copied.vault / "manifest/holdout.parquet", image_id="another")
    text = reasons(folders.public, holdout=copied.vault)
    assert "vault/manifest/benchmark.json: `benchmark` must be" in text
    assert "manifest/holdout.parquet: `ids` must equal the ids of the manifest in vault" in text


def test_what_validation_finds_is_in_the_same_list(copied: Folders) -> None:
    with (copied.public / "README.md").open("a", encoding="utf-8") as card:
        card.write("changed after it was built\n")
    (copied.public / "notes.txt").write_text("x")
    text = reasons(copied.public, repo_id="no-organization")
    assert "README.md: `sha256` must be " in text
    assert "`files` must be regular data files that CHECKSUMS.json lists" in text
    assert "the Hub: `repo_id` must be 'organization/name' of letters, digits, - _ ., got 'no-organization'" in text


@pytest.mark.parametrize("repo_id", ["org", "a/b/c", "org/-x", "org/a b", "org/a..b", "org/a--b", "org/x.git", "../x"])
def test_names_that_the_hub_does_not_take(folders: Folders, repo_id: str) -> None:
    assert "`repo_id` must be 'organization/name'" in reasons(folders.public, repo_id)


@pytest.mark.parametrize("tag", ["1.0.0", "v1", "main", "v1.0", "v1.0.0 ", "v1.0.0/x", "latest", ""])
def test_tags_that_are_no_version(folders: Folders, tag: str) -> None:
    assert "`tag` must be 'v' and a version X.Y.Z" in reasons(folders.public, tag=tag)


def test_not_a_dataset_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a dataset folder: it has no manifest/benchmark\.json"):
        prepare(tmp_path, REPO, private=False)


def test_a_picture_that_shows_nothing_is_refused_unless_named(tmp_path: Path) -> None:
    blank: list[str] = []

    def with_picture(record: LocalizationRecord) -> LocalizationRecord:
        picture = io.BytesIO()
        shade = int(hashlib.sha256(record.image_id.encode()).hexdigest()[:2], 16) // 4
        grey = Image.new("L", (record.width, record.height), shade)
        if blank:
            grey.paste(255 - shade, (0, 0, record.width // 2, record.height // 3))
        else:
            blank.append(record.image_id)
        grey.save(picture, "png")
        pixels = {"image": picture.getvalue(), "image_name": f"{record.image_id}.png", "pixel_pipeline": ORIGINAL}
        return replace(record, **pixels, source_sha256=hashlib.sha256(picture.getvalue()).hexdigest())

    folders = build(tmp_path, pixels="embed", change=with_picture)
    options = {"private": False, "holdout": folders.vault, "load": False}
    rule = rf"`contrast\[{blank[0]}\]` must be that of a radiograph: leave it out .* or name it with --accept-film"
    with pytest.raises(PublishRefusedError, match=rule + ", got every pixel is") as refused:
        prepare(folders.public, REPO, **options)
    assert len(refused.value.problems) == 1
    assert prepare(folders.public, REPO, accepted_films=blank, **options).files
