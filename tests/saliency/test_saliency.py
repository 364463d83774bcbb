"""From folders of heat maps to prediction files: formats, every option, interruption and resumption, wrong input."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import CHEXPERT_LABELS
from reveal_bench.masks import decode_mask, encode_mask, pack_masks
from reveal_bench.metrics import jackknife
from reveal_bench.metrics.heat_maps import at_size, largest_point, mask_above, otsu_mask, scaled, smoothed
from reveal_bench.metrics.localization import mask_iou
from reveal_bench.metrics.mask_agreement import boundary_iou, dice, hausdorff_95, surface_distance
from reveal_bench.metrics.pixelwise import sensitivity, specificity
from reveal_bench.reports.curves import read_curves
from reveal_bench.saliency_maps.maps import MapFile, find_maps, read_map
from reveal_bench.saliency_maps.tuning import TUNING_METRICS, curve_of_map
from tests.cli.test_score import call
from tests.saliency.published import published_pickle

FINDINGS = ("Airspace Opacity", "Edema", "Pleural Effusion")
IDS = {"p1_s1", "p1_s10"}
HEAT = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def folder_of_maps(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published pickle per question of the split: the reference, made coarse, under noise."""
    root = tmp_path_factory.mktemp("maps")
    rng = np.random.default_rng(4)
    bench = rb.load(world.folder, split="released")
    for record in bench.kind.data.read_records(world.folder, "released"):
        for i, finding in enumerate(record.asked("present")):
            mask = decode_mask(record.reference(finding).rle)
            rows, columns = (np.linspace(0, side - 1, 16).astype(int) for side in mask.shape)
            heat = mask[np.ix_(rows, columns)] * 0.7 + rng.random((16, 16)) * 0.5
            data = published_pickle(
                heat.astype(np.float32), task=finding, probability=0.1 + 0.4 * (i % 3), size=record.size
            )
            (root / f"{record.image_id}_{finding}_map.pkl").write_bytes(data)
    return root


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_predictions_are_those_of_each_map_by_itself(world: Any, folder_of_maps: Path, tmp_path: Path) -> None:
    out = tmp_path / "cam.jsonl"
    text = call("saliency", folder_of_maps, world.folder, "--out", out).stdout
    lines = lines_of(out)
    manifest = rb.load(world.folder, split="released").manifest
    assert [(line["image_id"], line["finding"]) for line in lines] == manifest.asked_pairs()
    assert text.startswith(f"wrote {len(lines)} predictions to {out}, 0 with an empty mask")
    for line in lines[::7]:
        file = MapFile(folder_of_maps / f"{line['image_id']}_{line['finding']}_map.pkl", line["finding"])
        heat, size = read_map(file), manifest.rows[line["image_id"]].size
        assert line["point"] == list(largest_point(heat.values, size))
        assert line["score"] == heat.probability
        (prediction,) = rb.lint([line], world.folder, allow_missing=True).predictions
        assert np.array_equal(decode_mask(prediction.mask), otsu_mask(heat.values, size, fill=True))
    scored = rb.score(out, world.folder, n_resamples=1)
    macro = {row["metric"]: row["value"] for row in scored.records if row["finding"] == "macro"}
    assert macro["point_hit"] > 0.7
    record = json.loads((tmp_path / "cam.jsonl.options.json").read_text())
    assert record["options"] == {
        "threshold": "otsu",
        "fill": True,
        "gate": None,
        "smooth": 0,
        "smoothing": "box",
    }
    assert rb.saliency(folder_of_maps, world.folder, out=tmp_path / "again.jsonl").n_predictions == len(lines)
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()


def test_every_option_says_what_it_does(world: Any, folder_of_maps: Path, tmp_path: Path) -> None:
    manifest = rb.load(world.folder, split="released").manifest
    first = manifest.asked_pairs()[0]
    heat = read_map(MapFile(folder_of_maps / "_".join([*first, "map.pkl"]), first[1])).values
    size = manifest.rows[first[0]].size

    def made(**options: Any) -> list[dict[str, Any]]:
        rb.saliency(folder_of_maps, world.folder, out=tmp_path / "out.jsonl", **options)
        return lines_of(tmp_path / "out.jsonl")

    def mask(line: dict[str, Any]) -> Any:
        return decode_mask(rb.lint([line], world.folder, allow_missing=True).predictions[0].mask)

    assert np.array_equal(mask(made(threshold=0.6)[0]), mask_above(heat, size, 0.6))
    assert np.array_equal(mask(made(fill=False)[0]), otsu_mask(heat, size, fill=False))
    table = dict.fromkeys(manifest.findings, 0.5) | {first[1]: 0.9}
    assert np.array_equal(mask(made(threshold=table)[0]), mask_above(heat, size, 0.9))
    assert {tuple(line) for line in made(threshold=None)} == {("image_id", "finding", "point", "score")}
    gated = made(gate=0.3)
    assert [not mask(line).any() for line in gated] == [line["score"] < 0.3 for line in gated]
    assert all("point" in line for line in gated)  # hits are not gated
    assert made(smooth=5)[0]["rle"] != made()[0]["rle"]
    bell = smoothed(heat, size, 2, gaussian=True)
    assert np.array_equal(mask(made(smooth=2, smoothing="gaussian", threshold=0.6)[0]), mask_above(bell, size, 0.6))
    published = made(smooth=5, smoothing="published")
    assert np.array_equal(mask(published[0]), otsu_mask(heat, size, fill=True, published_smoothing=5))
    assert published[0]["point"] == made()[0]["point"]
    with pytest.raises(ArgumentError, match="may be 'published' only with `smooth` above 0 and Otsu's threshold"):
        made(smoothing="published")
    with pytest.raises(ArgumentError, match="must be box or gaussian or published, got 'mean'"):
        made(smoothing="mean")
    assert made(n_processes=2) == made()
    rb.saliency([folder_of_maps, folder_of_maps], world.folder, out=tmp_path / "mean.jsonl")
    assert lines_of(tmp_path / "mean.jsonl") == made()


def test_tuned_thresholds_are_the_first_best_of_a_plain_loop(
    world: Any, folder_of_maps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jackknife, "LEAST_UNITS_OF_MEAN", 10)  # no finding of this split has the patients that it takes
    tuned = rb.tune_saliency(folder_of_maps, world.folder, split="released")
    bench = rb.load(world.folder, split="released")
    curves: dict[str, list[list[float]]] = {}
    for record in bench.kind.data.read_records(world.folder, "released"):
        for finding in record.asked("present"):
            reference = decode_mask(record.reference(finding).rle).astype(bool)
            path = folder_of_maps / f"{record.image_id}_{finding}_map.pkl"
            fine = scaled(at_size(read_map(MapFile(path, finding)).values, record.size))
            row = []
            for threshold in tuned.grid:
                above = fine > np.float32(threshold)
                row.append((above & reference).sum() / (above | reference).sum() if above.any() else np.nan)
            curves.setdefault(finding, []).append(row)
    for finding, rows in curves.items():
        expected = np.nanmean(np.array(rows), axis=0)
        np.testing.assert_allclose(tuned.curves[finding], expected)
        assert tuned.thresholds[finding] == tuned.grid[int(np.argmax(expected))]
        assert tuned.n_cases[finding] == len(rows)
    rb.saliency(folder_of_maps, world.folder, out=tmp_path / "half.jsonl", threshold=0.5)
    for one in rb.score(tmp_path / "half.jsonl", world.folder, split="released", n_resamples=1).estimates:
        if one.metric == "mask_iou" and one.finding != "macro":
            np.testing.assert_allclose(tuned.intervals[one.finding][3], (one.low, one.high))
    assert not all(np.isnan(ends).all() for ends in tuned.intervals.values())
    assert tuned.to_csv().splitlines()[0] == "finding,threshold,metric,value,low,high,n_cases,is_best"
    assert tuned.to_csv().count(",1\n") == len(curves)
    with pytest.raises(ArgumentError, match="must not be tuned on the predicted split, unless"):
        rb.saliency(folder_of_maps, world.folder, out=tmp_path / "x.jsonl", threshold=tuned)
    words = ("saliency", folder_of_maps, world.folder, "--out", tmp_path / "x.jsonl", "--threshold", "tuned")
    assert "--tune-split must be given if" in call(*words, expect=1).stderr
    same = call(*words, "--tune-split", "released", expect=1).stderr
    assert "must not be the predicted split, unless --tune-on-itself" in same
    call(*words, "--tune-split", "released", "--tune-on-itself", "--tune-grid", "0.3,0.5", "--tune-metric", "dice")
    record = json.loads((tmp_path / "x.jsonl.options.json").read_text())
    assert record["tuned"] == {"threshold": {"split": "released", "metric": "dice"}}
    assert set(record["options"]["threshold"].values()) <= {0.3, 0.5}
    output = call("score", tmp_path / "x.jsonl", world.folder, "--resamples", 1).stderr
    assert "its threshold was tuned on this split, so the score is too good" in " ".join(output.split())
    nearest = rb.tune_saliency(folder_of_maps, world.folder, split="released", metric="hausdorff_95", grid=(0.1, 0.6))
    for finding, curve in nearest.curves.items():
        assert nearest.thresholds[finding] == (0.1 if curve[0] <= curve[1] else 0.6)
    assert set(nearest.thresholds.values()) == {0.6}


def test_curves_of_a_map_are_the_metrics_of_its_masks(rng: np.random.Generator) -> None:
    """Each metric at each threshold, of the mask itself; constant maps and references of a whole image among them."""
    grid = (0.0, 0.2, 0.5, 0.9)
    for i in range(60):
        heat = np.ones((3, 3)) if i == 0 else rng.random((4, 5))
        reference = rng.random((17, 13)) < 0.4 if i != 1 else np.ones((17, 13), bool)
        masks = [encode_mask(mask_above(heat, (17, 13), threshold)) for threshold in grid]
        packed = pack_masks([encode_mask(reference)])
        pairs = pack_masks(masks), packed.take([0] * len(grid))
        expected = {
            "mask_iou": mask_iou(*pairs),
            "mask_iou_all": mask_iou(*pairs, slice="all"),
            "dice": dice(*pairs),
            "pixel_sensitivity": sensitivity(*pairs),
            "pixel_specificity": specificity(*pairs),
            "boundary_iou": boundary_iou(*pairs),
            "surface_distance": surface_distance(*pairs, spacing=(0.5, 0.7)),
            "hausdorff_95": [
                min(far, math.hypot(17 * 0.5, 13 * 0.7)) for far in hausdorff_95(*pairs, spacing=(0.5, 0.7))
            ],
        }
        assert tuple(expected) == TUNING_METRICS
        for metric, values in expected.items():
            result = curve_of_map(heat, packed, grid, metric, (0.5, 0.7))
            np.testing.assert_allclose(result, values, err_msg=metric)


def test_gates_are_the_best_of_a_plain_loop_by_either_rule(tmp_path: Path, twin_of: Any) -> None:
    folder, maps = tmp_path / "ds", tmp_path / "maps"
    call("build", twin_of("chexlocalize"), "--source", "chexlocalize", "--images", "withhold", "--out", folder)
    maps.mkdir()
    rng = np.random.default_rng(6)
    records = rb.load(folder, split="test").kind.data.read_records(folder, "test")
    answer: dict[str, list[tuple[float, float, bool]]] = {}
    for record in records:
        for finding in ("Cardiomegaly", "Support Devices", "Lung Lesion"):
            if finding in record.missing:
                continue
            probability = float(rng.integers(0, 9)) / 10  # on the cut-offs, where the rules differ
            heat = rng.random((6, 5))
            np.savez(maps / f"{record.image_id}_{finding}.npz", map=heat, prob=probability)
            mask = otsu_mask(heat, record.size, fill=True)
            annotation = record.reference(finding)
            drawn = annotation is not None and annotation.area_px > 0
            reference = decode_mask(annotation.rle).astype(bool) if drawn else np.zeros(record.size, bool)
            iou = (mask & reference).sum() / (mask | reference).sum()
            answer.setdefault(finding, []).append((probability, iou, bool(reference.any())))
    for rule in ("ours", "published"):
        tuned = rb.tune_gates(maps, folder, split="test", rule=rule)
        for finding, cases in answer.items():
            means = []
            for cut_off in tuned.grid:
                kept = [p > cut_off if rule == "published" else p >= cut_off for p, _, _ in cases]
                values = [
                    iou if keep else 0.0 for keep, (_, iou, present) in zip(kept, cases, strict=True) if keep or present
                ]
                means.append(np.mean(values) if values else np.nan)
            np.testing.assert_allclose(tuned.curves[finding], means)
            chosen = np.round(means, 3) if rule == "published" else np.array(means)
            if (rule, finding) == ("published", "Lung Lesion"):
                chosen[0] = np.nan
            assert tuned.thresholds[finding] == tuned.grid[int(np.nanargmax(chosen))]
    words = ("saliency", maps, folder, "--split", "validation", "--out", tmp_path / "out.jsonl", "--gate", "tuned")
    assert "must be given if" in call(*words, expect=1).stderr
    missing = call(*words, "--tune-split", "test", expect=1).stderr
    assert "must have maps of the split called <image>_<finding>" in missing  # none of validation
    assert not (tmp_path / "out.jsonl.gates.csv").exists()
    with pytest.raises(ArgumentError, match="must be 'ours' or 'published', got 'mine'"):
        rb.tune_gates(maps, folder, split="test", rule="mine")
    np.savez(maps / f"{records[0].image_id}_Edema.npz", map=HEAT)
    with pytest.raises(ArgumentError, match="must each have a probability, without which gates cannot be tuned"):
        rb.tune_gates(maps, folder, split="test")


def test_a_stopped_run_goes_on_and_another_one_begins_anew(world: Any, folder_of_maps: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    stopped: list[int] = []

    def stop(what: str, done: int, total: int) -> None:
        stopped.append(done)
        if len(stopped) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rb.saliency(folder_of_maps, world.folder, out=out, progress=stop)
    assert not out.exists()
    part = tmp_path / "out.jsonl.part"
    part.write_text(part.read_text() + '{"image_id": "half a li')  # as a kill may leave it
    rb.saliency(folder_of_maps, world.folder, out=out, progress=lambda what, done, total: stopped.append(done))
    assert stopped[5] == 6
    assert not part.exists()
    whole = out.read_bytes()
    rb.saliency(folder_of_maps, world.folder, out=tmp_path / "other.jsonl")
    assert whole == (tmp_path / "other.jsonl").read_bytes()
    stopped.clear()
    with pytest.raises(KeyboardInterrupt):
        rb.saliency(folder_of_maps, world.folder, out=out, progress=stop)
    again: list[int] = []
    rb.saliency(folder_of_maps, world.folder, out=out, threshold=0.5, progress=lambda w, d, t: again.append(d))
    assert again[0] == 1


def test_a_killed_run_ends_in_the_same_bytes(world: Any, folder_of_maps: Path, tmp_path: Path) -> None:
    def die(what: str, done: int, total: int) -> None:
        if done == 60:
            os.kill(os.getpid(), signal.SIGKILL)

    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    how: dict[str, Any] = {"out": out, "threshold": 0.5, "progress": die}
    child = get_context("fork").Process(target=rb.saliency, args=(folder_of_maps, world.folder), kwargs=how)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    n_left = len(out.with_name("out.jsonl.part").read_bytes().splitlines()) - 1
    assert 50 <= n_left <= 60
    done: list[int] = []
    rb.saliency(folder_of_maps, world.folder, out=out, threshold=0.5, progress=lambda w, d, t: done.append(d))
    assert done[0] in (n_left, n_left + 1)  # the last line may have been half a one
    rb.saliency(folder_of_maps, world.folder, out=whole, threshold=0.5)
    assert out.read_bytes() == whole.read_bytes()


def test_constant_maps_and_missing_ones_are_told(world: Any, folder_of_maps: Path, tmp_path: Path) -> None:
    pairs = rb.load(world.folder, split="released").manifest.asked_pairs()
    maps = tmp_path / "maps"
    for image_id, finding in pairs[:3]:
        (maps / image_id).mkdir(parents=True, exist_ok=True)
        np.save(maps / image_id / f"{finding}.npy", np.ones((3, 3)) if (image_id, finding) == pairs[0] else HEAT)
    np.save(maps / "of_another_image_Edema.npy", HEAT)
    done = call("saliency", maps, world.folder, "--out", tmp_path / "out.jsonl")
    lines = lines_of(tmp_path / "out.jsonl")
    assert [("point" in line, "rle" in line) for line in lines] == [(False, True), (True, True), (True, True)]
    assert "wrote 3 predictions" in done.stdout
    assert "1 with an empty mask" in done.stdout
    assert "1 maps are constant and have no point" in done.stderr
    assert f"{len(pairs) - 3} questions have no map" in done.stderr
    assert "1 files or maps are for other images" in done.stderr
    call("saliency", maps, world.folder, "--threshold", "none", "--out", tmp_path / "points.jsonl")
    assert len(lines_of(tmp_path / "points.jsonl")) == 2


def write_all_forms(root: Path) -> None:
    np.save(root / "p1_s1_Edema.npy", HEAT[None])
    np.savez(root / "p1_s1_Pleural Effusion_map.npz", map=HEAT, prob=0.25)
    Image.fromarray((HEAT * 5000).astype(np.uint16)).save(root / "p1_s1_lung_opacity.png")
    (root / "Edema").mkdir()
    Image.fromarray(HEAT).save(root / "Edema" / "p1_s10.tif")
    probabilities = np.arange(14) / 20
    data = published_pickle(HEAT, task="Airspace Opacity", probability=0.5, size=(30, 40))
    assert probabilities.size == len(CHEXPERT_LABELS)
    (root / "p1_s10_Airspace Opacity_map.pkl").write_bytes(data)


def test_every_form_and_name_of_a_map_is_found_and_read(tmp_path: Path) -> None:
    write_all_forms(tmp_path)
    result = find_maps(tmp_path, IDS, FINDINGS)
    assert set(result.files) == {
        ("p1_s1", "Edema"), ("p1_s1", "Pleural Effusion"), ("p1_s1", "Airspace Opacity"), ("p1_s10", "Edema"),
        ("p1_s10", "Airspace Opacity"),
    }  # fmt: skip
    for pair, file in result.files.items():
        heat = read_map(file)
        np.testing.assert_allclose(scaled(heat.values), HEAT / 11, atol=1e-6)
        assert heat.probability == {("p1_s1", "Pleural Effusion"): 0.25, ("p1_s10", "Airspace Opacity"): 0.5}.get(pair)


def test_lists_of_files_and_arrays_are_taken_as_a_folder_is(world: Any, folder_of_maps: Path, tmp_path: Path) -> None:
    files = sorted(folder_of_maps.iterdir())[:12]
    pairs = {(path.stem.removesuffix("_map")[: -len(name) - 1], name): MapFile(path, name) for path in files
             for name in (path.stem.removesuffix("_map").rpartition("_")[2],)}  # fmt: skip
    arrays: dict[tuple[str, str], Any] = {}
    for pair, file in pairs.items():
        heat = read_map(file)
        arrays[pair] = (heat.values[None], heat.probability)
    by_file = {pair: str(file.path) for pair, file in pairs.items()}
    nested: dict[str, dict[str, Any]] = {}
    for (image, finding), heat_and_probability in arrays.items():
        nested.setdefault(image, {})[finding] = heat_and_probability
    written = []
    for i, inputs in enumerate((files, by_file, arrays, [arrays, arrays], nested)):
        rb.saliency(inputs, world.folder, split="released", out=tmp_path / f"{i}.jsonl", threshold=0.5)
        written.append((tmp_path / f"{i}.jsonl").read_bytes())
    assert len(written[0].splitlines()) == 12
    assert len(set(written)) == 1
    assert "arrays, sha256 " in (tmp_path / "2.jsonl.options.json").read_text()
    tuned = [rb.tune_saliency(inputs, world.folder, split="released").curves for inputs in (files, arrays)]
    assert all(np.array_equal(tuned[0][finding], tuned[1][finding], equal_nan=True) for finding in tuned[0])
    scored = [rb.score_maps(inputs, world.folder, split="released").records for inputs in (files, arrays)]
    assert repr(scored[0]) == repr(scored[1])  # NaN are no different
    (first, *_) = arrays
    for wrong, message in (
        ({"a": {"Edema": HEAT}, "b": HEAT}, "must have keys (image, finding), got 'a'"),
        ({"a": HEAT}, "must have keys (image, finding), got 'a'"),
        ({(first[0], "Edoema"): HEAT}, "must name findings of the benchmark"),
        ({("elsewhere", "Edema"): HEAT}, "must have maps of images of the split, got 1 of others"),
        ({first: np.full((2, 2), np.nan)}, "must be maps: "),
        ({first: (HEAT, 7)}, "`prob` must be a number in [0, 1], got 7"),
        ([], "must be one folder or several, got none"),
        (np.zeros((2, 3, 8, 8)), "or arrays as {image: {finding: array}}, got a ndarray"),
        ([HEAT, HEAT], "or arrays as {image: {finding: array}}, got a ndarray"),
        (None, "must be a folder, files, or arrays"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=re.escape(message)):
            rb.saliency(wrong, world.folder, split="released", out=tmp_path / "wrong.jsonl")


def test_files_with_the_maps_of_several_findings(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    np.save(tmp_path / "p1_s1.npy", np.stack([HEAT, HEAT + 1]))
    save_file({"Edema": HEAT, "pleural_effusion": HEAT * 2}, tmp_path / "p1_s10.safetensors")
    result = find_maps(tmp_path, IDS, FINDINGS, names=["edema", "Lung Opacity"])
    assert {pair: float(read_map(file).values.max()) for pair, file in result.files.items()} == {
        ("p1_s1", "Edema"): 11, ("p1_s1", "Airspace Opacity"): 12, ("p1_s10", "Edema"): 11,
        ("p1_s10", "Pleural Effusion"): 22,
    }  # fmt: skip
    with pytest.raises(ArgumentError, match="must come with `names`, the findings of an array of several maps"):
        find_maps(tmp_path, IDS, FINDINGS)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("p1_s1_Edema.npy", b"\x93NUMPY", "must be a complete file of numeric arrays"),
        ("p1_s1_Edema.npz", b"PK\x03\x04", "must be a complete file of numeric arrays"),
        ("p1_s1_Edema.safetensors", b"\x08\x00", "must be a complete file of numeric arrays"),
        ("p1_s1_Edema.png", b"\x89PNG\r\n", "must be a complete picture"),
        ("p1_s1_Edema.pkl", b"cos\nsystem\n.", "it names 'os.system'"),
    ],
)
def test_damaged_maps_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    (file,) = find_maps(tmp_path, IDS, FINDINGS).files.values()
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_map(file)
    assert name in str(caught.value)


def test_maps_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for array, message in (
        (np.full((2, 2), np.nan), "must be finite, got nan"),
        (np.zeros((2, 3, 4)), "must be a two-dimensional array"),
        (np.array([["a"]]), "must be a two-dimensional array"),
    ):
        np.save(tmp_path / "p1_s1_Edema.npy", array)
        (file,) = find_maps(tmp_path, IDS, FINDINGS).files.values()
        with pytest.raises(ValueError, match=message):
            read_map(file)
    (tmp_path / "p1_s1_Edema_map.npy").write_bytes(b"")
    with pytest.raises(ArgumentError, match=r"must have one map of \(p1_s1, Edema\), got p1_s1_Edema.npy and"):
        find_maps(tmp_path, IDS, FINDINGS)


def test_wrong_arguments_are_one_sentence(world: Any, folder_of_maps: Path, tmp_path: Path) -> None:
    words = ("saliency", folder_of_maps, world.folder, "--out", tmp_path / "out.jsonl")
    table = tmp_path / "gates.csv"
    table.write_text("finding,gate\nEdema,0.5\nEdema,0.6\n")
    for more, message in (
        (("--threshold", "1.5"), "--threshold must be 'otsu', a number of at least 0 and below 1, or one for each"),
        (("--threshold", "high"), "--threshold must be a number or a table with the columns finding and a number"),
        (("--gate", table), "each finding once, got"),
        (("--gate", "2"), "--gate must be a number of at least 0 and at most 1"),
        (("--split", "other"), "must be one of the splits"),
        (("--ensemble", tmp_path), "must have maps of the split called <image>_<finding>"),
    ):
        assert message in call(*words, *more, expect=1).stderr, more
    table.write_text("prob_threshold,task\n0.5,Edema\n")
    assert "must have a number for every finding with a map" in call(*words, "--gate", table, expect=1).stderr
    inside = call(*words[:-1], world.folder / "out.jsonl", expect=1).stderr
    assert "must be outside dataset folders" in inside
    (tmp_path / "maps").mkdir()
    np.save(tmp_path / "maps" / f"{rb.load(world.folder).manifest.asked_pairs()[0][0]}_Edoema.npy", HEAT)
    misspelt = call("saliency", tmp_path / "maps", world.folder, "--out", tmp_path / "o.jsonl", expect=1).stderr
    assert "must name findings of the benchmark" in misspelt
    assert "nearest: Edema" in misspelt


def test_curves_beside_the_predictions_are_of_the_run_that_wrote_them(
    world: Any, folder_of_maps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = dataclasses.replace(rb.tune_saliency(folder_of_maps, world.folder, split="released"), split="other")
    (left, _), *others = tuned.thresholds.items()
    tuned = dataclasses.replace(tuned, thresholds=dict(others))
    gates = dataclasses.replace(tuned, thresholds=dict.fromkeys(tuned.thresholds, 0.2))
    monkeypatch.setattr("reveal_bench.api.tune_saliency", lambda *args, **options: tuned)
    monkeypatch.setattr("reveal_bench.api.tune_gates", lambda *args, **options: gates)
    curves = tmp_path / "out.jsonl.tuning.csv"
    words = ("saliency", folder_of_maps, world.folder, "--out", tmp_path / "out.jsonl")
    by_curves = (*words, "--threshold", "tuned", "--tune-split", "other")
    call(*by_curves, "--gate", "2", expect=1)
    assert not curves.exists()
    output = call(*by_curves, "--gate", "tuned").stderr
    assert f"no threshold for {left}: they have only points, so their IoU is 0" in " ".join(output.split())
    assert {line["finding"] for line in lines_of(tmp_path / "out.jsonl") if "rle" not in line} == {left}
    assert read_curves(curves)[left].best is None
    assert curves.read_text() == tuned.to_csv()
    assert curves.with_name("out.jsonl.gates.csv").read_text() == gates.to_csv() != tuned.to_csv()
    call(*by_curves, "--gate", "2", expect=1)
    assert curves.read_text() == tuned.to_csv()  # the predictions of that run are there, too
    call(*words)
    assert not curves.exists()


def test_maps_are_judged_without_a_threshold(world: Any, folder_of_maps: Path, tmp_path: Path) -> None:
    result = rb.score_maps(folder_of_maps, world.folder, split="released")
    values = {row["metric"]: row["value"] for row in result.records if row["finding"] == "macro"}
    hits = {"tolerant_hit": 0.7, "energy_inside": 0.05, "pixel_average_precision": 0.3}
    assert all(least < values[metric] <= 1 for metric, least in hits.items())
    assert values["contrast_to_noise"] > 0.5
    assert 0 < values["grounding_iou"] < 1
    pooled = [row for row in result.records if row["metric"] == "pooled_pixel_ap"]
    assert all(0.2 < row["value"] <= 1 for row in pooled)
    assert pooled[0]["low"] < pooled[0]["value"] < pooled[0]["high"]
    exact = rb.score_maps(folder_of_maps, world.folder, split="released", tolerance=0)
    call("saliency", folder_of_maps, world.folder, "--out", tmp_path / "new" / "points.jsonl", "--threshold", "none")
    scored = rb.score(tmp_path / "new" / "points.jsonl", world.folder, n_resamples=1)
    visible = {(row["metric"], row["finding"]): row["value"] for row in scored.records}
    for row in exact.records:  # without a tolerance it is the hit rate
        if row["metric"] == "tolerant_hit":
            assert row["value"] == pytest.approx(visible["point_hit", row["finding"]])
    text = call("score-maps", folder_of_maps, world.folder, "--tolerance", 30).stdout
    assert "hits within 30 pixels, 95% intervals by the jackknife over patients" in text
    some = tmp_path / "some"
    some.mkdir()
    first = sorted(folder_of_maps.iterdir())[0]
    (some / first.name).write_bytes(first.read_bytes())
    assert rb.score_maps(some, world.folder, split="released").rows.n_missing == len(result.rows.findings) - 1
    with pytest.raises(ArgumentError, match="must be in pixels if an image has no spacing"):
        rb.score_maps(some, world.folder, split="released", in_mm=True)
