"""``croissant.json`` and ``eval.yaml``: valid to mlcroissant, true of the files, and readable with it offline."""

import functools
import io
import json

import numpy as np
import pytest
import yaml
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS, bundled
from reveal_bench.dataset import card
from reveal_bench.dataset.card import Config, card_template, render_eval_yaml
from reveal_bench.dataset.croissant import RAI, render_croissant
from reveal_bench.kinds import KINDS
from tests.dataset.card_folders import digest, findings_folder, localization_folder, pixels, rows_of, tasks_folder

pytestmark = [  # of rdflib and pandas, which mlcroissant calls
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

MAKERS = {"localization": localization_folder, "multilabel": findings_folder, "tasks": tasks_folder}


@pytest.fixture(scope="module", params=MAKERS)
def built(request, tmp_path_factory):
    """A folder with a private holdout, and the name of its main config."""
    root = tmp_path_factory.mktemp(request.param)
    return MAKERS[request.param](root, holdout=True), request.param


@functools.cache
def read(folder):
    import mlcroissant

    return mlcroissant.Dataset(str(folder / "croissant.json"))


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def test_mlcroissant_finds_no_fault(built):
    folder, config = built
    dataset = read(folder)
    assert dataset.metadata.ctx.issues.errors == set()
    warnings = dataset.metadata.ctx.issues.warnings
    missing = {str(warning).split("org/")[-1].split('"')[0] for warning in warnings}
    assert missing == ({"datePublished"} if config == "tasks" else set()), "of tasks it is known to their makers alone"


def test_every_config_iterates_with_all_its_rows(built):
    folder, _ = built
    dataset = read(folder)
    configs = {path.name for path in folder.iterdir() if path.is_dir()}
    record_sets = {record_set.uuid for record_set in dataset.metadata.record_sets}
    assert record_sets == configs | {f"{config}_splits" for config in configs}
    for config in configs:
        records = list(dataset.records(config))
        assert len(records) == len(rows_of(folder, f"{config}/"))
        names = {text(record[f"{config}/split"]) for record in records}
        assert names == {
            path.name.split("-")[0].removesuffix(".parquet") for path in (folder / config).glob("*.parquet")
        }


def test_a_split_can_be_picked(built):
    folder, config = built
    key = KINDS[next(name for name, kind in KINDS.items() if kind.config == config)].key
    for name, split, file in ((config, "released", f"{config}/released"), ("manifest", "holdout", "manifest/holdout")):
        picked = read(folder).records(name, filters={f"{name}/split": split})
        assert [text(record[f"{name}/{key}"]) for record in picked] == [row[key] for row in rows_of(folder, file)]


def test_pictures_and_nested_values_come_through(tmp_path):
    folder = tasks_folder(tmp_path, n=2)
    second = list(read(folder).records("tasks"))[1]
    assert text(second["tasks/prompt"]) == "Is there a mass? (1)"
    assert np.array_equal(np.asarray(second["tasks/images"][0]), pixels(1))
    assert np.array_equal(np.asarray(second["tasks/prior_images"][0]), pixels(101))
    assert second["tasks/reference_boxes"][0]["tasks/reference_boxes/bbox_xywh"] == [1.0, 2.0, 3.125, 4.0]
    assert [text(tag) for tag in second["tasks/tags"]["tasks/tags/laterality"]] == ["left"]
    scores = second["tasks/question_scores"]
    assert scores["tasks/question_scores/complexity"] == 3


def test_masks_and_labels_come_through(tmp_path):
    folder = localization_folder(tmp_path, n=2)
    record = list(read(folder).records("localization"))[1]
    row = rows_of(folder, "localization/")[1]
    (annotation,) = record["localization/annotations"]
    assert (
        text(record["localization/annotations/rle"]["localization/annotations/rle/counts"][0])
        == (row["annotations"][0]["rle"]["counts"])
    )
    assert annotation["localization/annotations/polygons"] == row["annotations"][0]["polygons"]
    assert record["localization/label_status"]["localization/label_status/Pleural_Effusion"] == 0
    assert record["localization/label_status"]["localization/label_status/Edema"] == 1
    assert record["localization/image"].size == (30, 20)


def test_withheld_pixels_are_none(tmp_path):
    folder = findings_folder(tmp_path, n=2, pixels="withhold")
    records = list(read(folder).records("multilabel"))
    assert [record["multilabel/images"] for record in records] == [[None], [None, None]]


def test_every_table_is_described_with_its_hash_and_size(built):
    folder, _ = built
    document = json.loads((folder / "croissant.json").read_text())
    files = {entry["@id"]: entry for entry in document["distribution"] if entry["@type"] == "cr:FileObject"}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")} <= set(files)
    for name, entry in files.items():
        data = (folder / name).read_bytes()
        assert entry["sha256"] == digest(data)
        assert entry["contentSize"] == f"{len(data)} B"
        assert entry["contentUrl"] == name


def test_rai_fields_have_the_prose_of_the_card():
    for benchmark in BENCHMARKS.values():
        features = KINDS[benchmark.kind].table.features(benchmark)
        config = Config(KINDS[benchmark.kind].config, {"test": (1, 1)}, features, default=True)
        options = {"version": "2.0.0", "files": {}}
        document = json.loads(render_croissant(benchmark, [config], synthetic=False, **options))
        template = card_template(benchmark)
        plain = " ".join(template.replace("**", "").split())
        for name in RAI:
            assert len(document[name]) > 40, name
            # the first words are in the template, links and places aside
            assert document[name][:25].split("(")[0].split(" (")[0] in plain
            assert "{{" not in document[name]
            assert "|" not in document[name]
        assert document["version"] == "2.0.0"
        if benchmark.name.startswith("own-"):  # whose terms and authors nobody but its makers know
            assert document["license"] == "unknown"
        else:
            assert document["license"].startswith("https://")
            assert document["citeAs"].startswith("@")
        made_up = json.loads(render_croissant(benchmark, [config], synthetic=True, **options))
        assert made_up["description"].startswith("SYNTHETIC")
        assert made_up["license"] == "https://spdx.org/licenses/Apache-2.0"
        assert all("synthetic stand-in" in made_up[name] for name in RAI)


def test_a_template_without_prose_is_an_error(tmp_path, monkeypatch):
    template = (bundled("dataset_cards") / "chestx-det.md").read_text()
    start, end = template.index("## Privacy"), template.index("## Maintenance")
    (tmp_path / "chestx-det.md").write_text(template[:start] + "## Privacy\n\n{{views_table}}\n\n" + template[end:])
    text = (tmp_path / "chestx-det.md").read_text()
    start, end = text.index("## Demographics"), text.index("## Known holes")
    (tmp_path / "chestx-det.md").write_text(text[:start] + text[end:])
    monkeypatch.setattr(card, "bundled", lambda _: tmp_path)
    with pytest.raises(
        ValueError,
        match=(
            r"must contain prose for rai:personalSensitiveInformation from Privacy and "
            r"Demo"
        ),
    ):
        render_croissant(BENCHMARKS["chestx-det"], [], version="1.0.0", synthetic=False, files={})


def test_two_builds_give_the_same_text(tmp_path):
    texts = {(findings_folder(tmp_path / name) / "croissant.json").read_text() for name in ("a", "b")}
    assert len(texts) == 1


def test_eval_yaml_names_every_split_that_can_be_asked(built):
    folder, config = built
    text = (folder / "eval.yaml").read_text()
    assert text.startswith("# `evaluation_framework: reveal-bench`:"), "none of those that the Hub lists"
    document = yaml.safe_load(text)
    assert list(document) == ["name", "description", "evaluation_framework", "tasks"]
    assert document["evaluation_framework"] == "reveal-bench"
    tasks = document["tasks"]
    assert {(task["config"], task["split"]) for task in tasks} == {(config, "released"), ("holdout_inputs", "holdout")}
    assert len({task["id"] for task in tasks}) == len(tasks), "the Hub ranks the values of one id in one list"
    expected = {
        "localization": "Hit rate as a fraction from 0 to 1, Grid",
        "multilabel": "F1 as a fraction from 0 to 1, Precision",
        "tasks": "Mean score from 1 to 5, Scores of 5 as a fraction",
    }
    assert f"Values are not percentages; scales: {expected[config]}" in document["description"]


def test_eval_yaml_has_a_task_for_each_metric_by_which_more_is_better():
    benchmark = BENCHMARKS["chestx-det-detection"]
    features = KINDS["detection"].table.features(benchmark)
    configs = [
        Config("detection", {"test": (1, 1)}, features, default=True),
        Config("holdout_inputs", {"holdout": (1, 1)}, features),
    ]
    tasks = yaml.safe_load(render_eval_yaml(benchmark, configs, version="1.0.0"))["tasks"]
    assert [task["id"] for task in tasks] == [
        "chestx_det_detection_test_ap_50",
        "chestx_det_detection_test_cpm",
        "chestx_det_detection_test_wafroc",
        "chestx_det_detection_test_lesion_sensitivity",
        "chestx_det_detection_test_ap",  # no false_alarms: the Hub would rank the most of them first
        "chestx_det_detection_holdout_ap_50",
        "chestx_det_detection_holdout_cpm",  # the only figures that a board releases
    ]


def test_eval_yaml_leaves_side_tables_out():
    benchmark = BENCHMARKS["reveal-cxr"]
    features = KINDS["findings"].table.features(benchmark)
    configs = [
        Config("multilabel", {"a": (1, 1), "b": (1, 1)}, features, default=True),
        Config("labels", {"terms": (1, 1)}, features),
    ]
    tasks = yaml.safe_load(render_eval_yaml(benchmark, configs, version="1.0.0"))["tasks"]
    assert {(task["config"], task["split"]) for task in tasks} == {("multilabel", "a"), ("multilabel", "b")}


def test_the_pictures_of_the_masks_are_the_masks(tmp_path):
    folder = localization_folder(tmp_path, n=1)
    (record,) = read(folder).records("masks")
    stored = Image.open(io.BytesIO(rows_of(folder, "masks/")[0]["mask"]["bytes"]))
    assert np.array_equal(np.asarray(record["masks/mask"]), np.asarray(stored))
    assert int((np.asarray(stored) > 0).sum()) == 4 * 3  # the rectangle of make_record(0)
