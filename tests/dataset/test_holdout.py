"""The private half stays private."""

import hashlib
import json
import shutil
import stat
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from reveal_bench.dataset.build import BuildLog, build_folder
from reveal_bench.dataset.holdout import divide_patients
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.localization.records import read_localization, read_manifest
from reveal_bench.sources.source import BuildError
from tests.conftest import files_of


@pytest.fixture
def folders(tmp_path, benchmark, record):
    """Ten test images of five patients, half of them private, and two of validation."""
    records = [record(i, patient=f"p{i // 2}") for i in range(10)]
    more = [record(i) for i in (10, 11)]
    public, private = tmp_path / "public", tmp_path / "private"
    build_folder({"validation": more, "test": records}, public, benchmark, pixels="withhold", holdout=private)
    return public, private


def by_hash(names, seed):
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}\0{name}".encode()).hexdigest())


def test_division_is_by_patient_seed_and_fraction():
    names = [f"p{i}" for i in range(9)]
    private = divide_patients(names * 3, fraction=0.5, seed=7)
    assert private == set(by_hash(names, 7)[:5])  # 5 of 9: 4.5 rounded half up
    assert private == divide_patients(reversed(names), fraction=0.5, seed=7)
    assert private != divide_patients(names, fraction=0.5, seed=8)
    assert len(divide_patients(names, fraction=0.01, seed=0)) == 1
    assert len(divide_patients(names, fraction=0.99, seed=0)) == 8


def test_a_patient_more_or_less_moves_one_at_most():
    names = [f"p{i}" for i in range(200)]
    before = divide_patients(names, fraction=0.5, seed=1)
    for others in (names[1:], names[:-1], [*names, "new"]):
        after = divide_patients(others, fraction=0.5, seed=1)
        assert len((before ^ after) & set(others)) <= 1


def test_nobody_changes_sides_when_the_earlier_halves_are_given():
    names = [f"p{i}" for i in range(100)]
    before = divide_patients(names, fraction=0.5, seed=1)
    more = [*names[5:], *(f"new{i}" for i in range(41))]
    after = divide_patients(
        more, fraction=0.5, seed=2, private_before=before, released_before=set(names) - before
    )  # fmt: skip
    assert after & set(names) == before & set(more)
    assert len(after) == 68  # half of 136, though five of the earlier patients are gone
    with pytest.raises(ValueError, match="must have each patient in only one half, got 'a' in both"):
        divide_patients("abc", fraction=0.5, seed=0, private_before="a", released_before="ab")
    with pytest.raises(ValueError, match="must leave patients for both halves"):
        divide_patients("ab", fraction=0.5, seed=0, released_before="ab")


def test_overwriting_moves_no_patient(tmp_path, benchmark, record):
    """Another seed, or another key of the ids, is refused over a holdout, unless the old halves are named."""
    records = [record(i) for i in range(12)]
    out, private = tmp_path / "out", tmp_path / "private"

    def write(records, **options):
        folders = {"out": out, "holdout": private, "overwrite": True} | options
        build_folder({"test": records}, benchmark=benchmark, pixels="withhold", **folders)
        return {r.patient_id for r in read_localization(private, "holdout")}

    first = write(records, seed=1)
    with pytest.raises(
        ValueError,
        match=r"must leave each patient .*, or remove .* got seed 2, with which \d private",
    ):
        write(records, seed=2)
    with pytest.raises(
        ValueError, match=r"and \d released patients would become private$"
    ):  # even without the old private folder
        write(records, seed=2, holdout=tmp_path / "elsewhere")
    others = [replace(one, patient_id=f"other-{i}") for i, one in enumerate(records)]
    with pytest.raises(ValueError, match=r"`overwrite` must replace folders that have a patient in common"):
        write(others, seed=1)
    assert write(records, seed=1, version="1.0.1") == first
    assert write(records, seed=2, previous=out, previous_holdout=private) == first
    older = {"out": tmp_path / "older", "holdout": tmp_path / "older-private"}
    write([records[0], others[1]], seed=1, **older)
    with pytest.raises(
        ValueError, match=r"must leave each patient .*, or remove .* got seed 2"
    ):  # named are others than replaced
        write(records, seed=2, previous=older["out"], previous_holdout=older["holdout"])
    assert {r.patient_id for r in read_localization(private, "holdout")} == first


def test_overwriting_publishes_no_holdout(folders, benchmark, record):
    """No build without a holdout replaces a folder with one, and no public folder a private one."""
    public, private = folders
    records = {"test": [record(i, patient=f"p{i // 2}") for i in range(10)]}
    before = files_of(public.parent)
    refusals = (
        ({"out": public}, "must not replace a folder with a private holdout .*: pass `holdout`, or remove"),
        ({"out": private}, "must not replace the private folder of a holdout by a public folder"),
        ({"out": private, "holdout": public}, "must not replace the private folder of a holdout by a public folder"),
    )
    for paths, rule in refusals:
        with pytest.raises(ValueError, match=f"`overwrite` {rule}"):
            build_folder(records, benchmark=benchmark, pixels="withhold", overwrite=True, **paths)
    assert files_of(public.parent) == before


@pytest.mark.parametrize("damage", [None, "", "[]", '{"schema": 3}'])
@pytest.mark.parametrize("side", [0, 1])
def test_a_damaged_folder_is_not_overwritten(folders, benchmark, record, side, damage):
    """Without their description, the folders do not list the private patients."""
    description = folders[side] / "manifest" / "benchmark.json"
    description.unlink() if damage is None else description.write_text(damage)
    records = {"test": [record(i, patient=f"p{i // 2}") for i in range(10)]}
    before = files_of(folders[0].parent)
    paths = {"out": folders[0], "holdout": folders[1]} if side else {"out": folders[0]}
    with pytest.raises(ValueError, match=r"`overwrite` must only replace a readable dataset folder: .*benchmark.json"):
        build_folder(records, benchmark=benchmark, pixels="withhold", overwrite=True, **paths)
    assert before.items() <= files_of(folders[0].parent).items()


def test_private_images_stay_private_in_another_holdout_or_split(folders, benchmark, record):
    """A smaller holdout elsewhere, or a source that moves a patient to a public split, would publish references."""
    public, private = folders
    records = [record(i, patient=f"p{i // 2}") for i in range(10)]
    held = {row.image_id for row in read_localization(private, "holdout")}
    kept = [one for one in records if one.image_id in held][:2]  # the images of one patient
    rest = [one for one in records if one not in kept]
    root = public.parent
    old = {"previous": public, "previous_holdout": private}
    builds = (
        ({"test": records}, {"out": public, "holdout": root / "new", "holdout_fraction": 0.2, "overwrite": True}),
        ({"test": rest, "train": kept}, {"out": root / "2", "holdout": root / "2p", **old}),
    )
    before = files_of(root)
    for splits, options in builds:
        with pytest.raises(BuildError, match="`image_id` must stay private unless the holdout is retired, because"):
            build_folder(splits, benchmark=benchmark, pixels="withhold", **options)
    assert before.items() <= files_of(root).items()


def test_a_dataset_of_a_holdout_alone_can_be_built_again(tmp_path, benchmark, record):
    records = {"holdout": [record(0), record(1)]}
    options = {"holdout": tmp_path / "private", "holdout_split": "holdout", "pixels": "withhold", "overwrite": True}
    for version in ("1.0.0", "1.0.1"):
        info = build_folder(records, tmp_path / "out", benchmark, version=version, **options)
    assert info.version == "1.0.1"


def test_a_new_version_keeps_who_is_private(tmp_path, benchmark, record):
    records = [record(i) for i in range(12)]
    first = {"out": tmp_path / "1", "holdout": tmp_path / "1p"}
    build_folder({"test": records[:8]}, benchmark=benchmark, pixels="withhold", seed=1, **first)
    old = {"previous": first["out"], "previous_holdout": first["holdout"]}
    build_folder(
        {"test": records}, tmp_path / "2", benchmark, pixels="withhold", holdout=tmp_path / "2p", seed=9, **old
    )  # fmt: skip
    private = [{r.image_id for r in read_localization(tmp_path / name, "holdout")} for name in ("1p", "2p")]
    released = [{r.image_id for r in read_localization(tmp_path / name, "released")} for name in ("1", "2")]
    assert private[0] < private[1]
    assert released[0] < released[1]
    assert len(private[1]) == len(released[1]) == 6
    strangers = {"test": [replace(one, patient_id=f"other-{i}") for i, one in enumerate(records)]}
    with pytest.raises(ValueError, match=r"`previous` must have a patient in common .* different secrets \(`id_key`\)"):
        build_folder(strangers, tmp_path / "4", benchmark, pixels="withhold", holdout=tmp_path / "4p", **old)
    with pytest.raises(ValueError, match="`previous` and `previous_holdout` must be given together"):
        build_folder({"test": records}, tmp_path / "3", benchmark, pixels="withhold", previous=first["out"])


def test_the_best_of_several_divisions_is_taken(tmp_path, benchmark, record):
    records = [record(i, finding="Edema" if i < 4 else "Pneumothorax") for i in range(8)]
    names = [one.patient_id for one in records]
    sick = set(names[:4])
    draws = [divide_patients(names, fraction=0.5, seed=seed) for seed in (6, *(f"6 draw {i}" for i in range(2, 13)))]
    # p = n / 4 of one half and 1 - p of the other have the difference (2p - 1) / sqrt(p (1 - p))
    shares = [len(draw & sick) / 4 for draw in draws]
    values = [np.inf if p in (0, 1) else abs(2 * p - 1) / np.sqrt(p * (1 - p)) for p in shares]
    assert values[0] > min(values)
    log = BuildLog()
    build_folder({"test": records}, tmp_path / "a", benchmark, pixels="withhold", holdout=tmp_path / "ap", seed=6,
                 best_of=12, log=log)  # fmt: skip
    private = {r.patient_id for r in read_localization(tmp_path / "ap", "holdout")}
    assert private == draws[values.index(min(values))]
    assert log.balance.taken == values.index(min(values)) + 1
    assert log.balance.values == pytest.approx(values)
    edema = next(share for share in log.balance.categories if share.column == "Edema")
    assert (edema.released, edema.holdout) == (4 - len(private & sick), len(private & sick))
    for options in ({"best_of": 0, "holdout": tmp_path / "bp"}, {"best_of": 2}):
        with pytest.raises(ValueError, match="`best_of` must be"):
            build_folder({"test": records}, tmp_path / "b", benchmark, pixels="withhold", **options)


def test_the_order_of_the_source_tells_nothing(tmp_path, benchmark, record):
    """Sources are often sorted by finding; public files are the same whatever the order was."""
    records = [record(i, finding="Edema" if i < 5 else "Pneumothorax") for i in range(10)]
    for name, rows in (("a", records), ("b", records[::-1])):
        build_folder({"test": rows}, tmp_path / name, benchmark, pixels="withhold", holdout=tmp_path / f"{name}p")
    for name in ("a", "ap"):
        other = tmp_path / name.replace("a", "b")
        files = [path for path in sorted((tmp_path / name).rglob("*")) if path.is_file()]
        assert len(files) >= 5
        for path in files:
            assert path.read_bytes() == (other / path.relative_to(tmp_path / name)).read_bytes(), path
    ids = list(read_manifest(tmp_path / "a", "holdout").rows)
    assert ids == by_hash(ids, 0)


def test_both_halves_are_whole_folders(folders):
    public, private = folders
    assert list(read_folder_info(public).splits) == ["validation", "released", "holdout"]
    released, holdout = read_localization(public, "released"), read_localization(private, "holdout")
    assert {r.patient_id for r in released}.isdisjoint(r.patient_id for r in holdout)
    assert sorted(r.image_id for r in released + holdout) == sorted(f"img{i}" for i in range(10))
    assert read_manifest(public, "holdout").rows == read_manifest(private, "holdout").rows
    with pytest.raises(ValueError, match="holds no references of split 'holdout': they are private"):
        read_localization(public, "holdout")
    assert validate_folder(public, holdout=private) == []
    assert validate_folder(private, load=False) == []
    assert "PRIVATE" in (private / "README.md").read_text()


def test_private_files_are_for_their_owner_alone(folders):
    _, private = folders
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [private, *private.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_no_reference_of_the_holdout_is_in_the_public_folder(folders):
    public, private = folders
    secrets = set()
    for record in read_localization(private, "holdout"):
        secrets |= {record.source_sha256, record.annotations[0].rle.counts, f"'x': {record.points[0].x}"}
        secrets.add(str(list(record.annotations[0].polygons[0][1])))
    seen = "".join(str(pq.read_table(path).to_pylist()) for path in public.rglob("*.parquet"))
    seen += "".join(path.read_text() for path in [public / "README.md", *public.rglob("*.json")])
    assert not [secret for secret in secrets if secret in seen]
    own = read_localization(public, "released")[0]
    assert own.annotations[0].rle.counts in seen  # the search does find what it should


@pytest.mark.parametrize("pixels", ["withhold", "embed"])
def test_public_files_do_not_depend_on_the_references_of_the_holdout(tmp_path, benchmark, record, pixels):
    """Another finding in every private image changes the manifest's questions, its hashes, and nothing else public."""
    patients = [f"p{i}" for i in range(8)]
    private = divide_patients(patients, fraction=0.5, seed=0)
    for name, finding in (("a", "Edema"), ("b", "Pneumothorax")):
        records = [
            record(i, patient=p, image=b"not read", finding=finding if p in private else "Edema")
            for i, p in enumerate(patients)
        ]
        build_folder({"test": records}, tmp_path / name, benchmark, pixels=pixels, holdout=tmp_path / f"{name}-private")
    different = [
        path.relative_to(tmp_path / "a").as_posix()
        for path in sorted((tmp_path / "a").rglob("*"))
        if path.is_file() and path.read_bytes() != (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    ]
    assert different == ["CHECKSUMS.json", "croissant.json", "manifest/holdout.parquet"]
    lines = [(tmp_path / name / "croissant.json").read_text().splitlines() for name in ("a", "b")]
    changed = [line.split(":")[0].strip() for line, other in zip(*lines, strict=True) if line != other]
    assert changed == ['"contentSize"', '"sha256"']  # of the manifest


def test_holdout_inputs_are_blank(tmp_path, benchmark, record):
    records = [record(i, image=b"x", missing=("Edema",)) for i in range(4)]
    build_folder({"test": records}, tmp_path / "a", benchmark, holdout=tmp_path / "b")
    rows = pq.read_table(tmp_path / "a" / "holdout_inputs").to_pylist()
    assert len(rows) == 2
    for row in rows:
        assert row["label_status"] is None
        assert row["source_sha256"] is None
        assert [row[name] for name in ("labels", "annotations", "points", "missing")] == [[], [], [], []]
        assert row["image"]["bytes"] == b"x"
    assert pq.read_table(tmp_path / "b" / "localization").column("image").null_count == 2


def leak_shard(public, private):
    shutil.copy(private / "localization" / "holdout-00000-of-00001.parquet", public / "localization")


def leak_json(public, private):
    secret = read_localization(private, "holdout")[0].annotations[0].rle.counts
    (public / "notes.json").write_text(json.dumps({"mask": secret}))


def leak_card(public, private):
    secret = read_localization(private, "holdout")[0].source_sha256
    (public / "README.md").write_text((public / "README.md").read_text() + secret)


def leak_manifest(public, private):
    shutil.copy(private / "localization" / "holdout-00000-of-00001.parquet", public / "manifest" / "more.parquet")


@pytest.mark.parametrize(
    ("leak", "file"),
    [
        (leak_shard, "localization/holdout-00000-of-00001.parquet"),
        (leak_json, "notes.json"),
        (leak_card, "README.md"),
        (leak_manifest, "manifest/more.parquet"),
    ],
)
def test_planted_leaks_are_found(folders, leak, file):
    public, private = folders
    leak(public, private)
    matches = [
        problem
        for problem in validate_folder(public, holdout=private, load=False)
        if "holdout" in problem.rule and problem.file == file
    ]
    assert matches


def test_a_patient_on_both_sides_is_found(tmp_path, benchmark, record):
    for name, i in (("public", 0), ("private", 1)):
        build_folder({"test": [record(i, patient="p")]}, tmp_path / name, benchmark, pixels="withhold")
    problems = validate_folder(tmp_path / "public", holdout=tmp_path / "private", load=False)
    assert [(problem.field, problem.value) for problem in problems] == [("patient_id", "p")]


def test_points_alone_are_enough_of_a_leak(tmp_path, benchmark, record):
    only_point = {"annotations": (), "source_sha256": None}
    build_folder({"test": [record(0, **only_point)]}, tmp_path / "a", benchmark, pixels="withhold")
    build_folder({"test": [replace(record(0, **only_point))]}, tmp_path / "b", benchmark, pixels="withhold")
    fields = {problem.field for problem in validate_folder(tmp_path / "a", holdout=tmp_path / "b", load=False)}
    assert fields == {"points", "patient_id", "image_id", "study_id"}


def test_folders_inside_one_another_are_refused(folders):
    public, _ = folders
    with pytest.raises(ValueError, match="must neither be inside `out`"):
        validate_folder(public, holdout=public / "manifest")
