"""The cards: every template is whole, every place is filled, no config is lost."""

import re

import pytest

from reveal_bench.benchmarks import BENCHMARKS, bundled
from reveal_bench.dataset import card
from reveal_bench.dataset.card import PLACE, SECTIONS, Config, front_matter, private_card, render_card, sections
from reveal_bench.dataset.card_tables import column_meanings, config_meanings
from reveal_bench.dataset.citation import bibtex
from reveal_bench.dataset.croissant import section_prose
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.tasks.rows import ratings_features
from tests.dataset.card_folders import FINDINGS, findings_folder, localization_folder, tasks_folder

TEMPLATES = sorted(bundled("dataset_cards").glob("*.md"))
HUB_TASKS = {
    "image-classification", "image-segmentation", "object-detection", "visual-question-answering",
    "image-text-to-text", "question-answering", "zero-shot-image-classification", "image-feature-extraction",
}  # fmt: skip
"""Task ids of the Hub's own list (huggingface.js, packages/tasks) that a set of chest radiographs may have."""


def rendered(name, **options):
    benchmark = BENCHMARKS[name]
    features = KINDS[benchmark.kind].table.features(benchmark)
    configs = [Config(KINDS[benchmark.kind].config, {"test": (0, 0)}, features, default=True)]
    arguments = {
        "version": "1.2.3",
        "embedded": True,
        "n_holdout": None,
        "asks": "present",
        "synthetic": False,
        **options,
    }
    return render_card(
        benchmark, {"test": KINDS[benchmark.kind].table.tally()}, features=features, **{"configs": configs, **arguments}
    )


@pytest.fixture(params=TEMPLATES, ids=lambda path: path.stem)
def template(request):
    return request.param


def test_every_benchmark_has_a_template_and_every_template_a_benchmark():
    assert {path.stem for path in TEMPLATES} == {row.card or row.name for row in BENCHMARKS.values()}


def test_a_template_has_every_section_in_order(template):
    _, body = front_matter(template.read_text())
    assert [heading for heading in sections(body) if heading in SECTIONS] == list(SECTIONS)
    assert {"notice", "canary", "load_example", "features_table", "pixels", "holdout"} <= set(PLACE.findall(body))


@pytest.mark.parametrize("heading", ["Collection", "Annotation", "Citation", "Licence and terms"])
def test_no_two_templates_say_the_same(heading):
    texts = [sections(front_matter(path.read_text())[1])[heading] for path in TEMPLATES]
    assert len(set(texts)) == len(TEMPLATES)


def test_template_contains_no_count_of_the_data(template):
    """A number of images or studies in prose would be wrong after the next refresh."""
    _, body = front_matter(template.read_text())
    summary = sections(body)["Summary"]
    assert re.search(r"\{\{n_(images|studies|tasks)\}\}", summary)
    assert "{{version}}" in summary


def test_the_yaml_block_is_what_the_hub_wants(template):
    block, _ = front_matter(template.read_text())
    assert set(block["task_categories"]) <= HUB_TASKS
    assert block["annotations_creators"]
    assert block["language"] == ["en"]
    assert block["license"] != "other" or (block["license_name"] and block["license_link"].startswith("https://"))
    assert not {"configs", "dataset_info"} & set(block)
    restricted = BENCHMARKS[template.stem].licence == "restricted"
    assert restricted == bool(block.get("extra_gated_prompt") and block.get("extra_gated_fields"))


def test_a_template_has_prose_for_the_rai_fields_and_a_bibtex(template):
    text = template.read_text()
    prose = section_prose(text, {"title": "T", "version": "1"})
    empty = [heading for heading in ("Collection", "Annotation", "Privacy", "Known holes") if not prose[heading]]
    assert empty == []
    assert "{{" not in "".join(prose.values())
    assert bibtex(text).startswith("@") != template.stem.startswith("own-")  # a set of one's own has no paper yet


@pytest.mark.parametrize("synthetic", [False, True])
def test_every_template_fills(template, synthetic):
    text = rendered(template.stem, synthetic=synthetic, n_holdout=3)
    assert not PLACE.search(text)
    assert "Not for clinical use" in text
    block, _ = front_matter(text)
    assert ("SYNTHETIC" in text) == synthetic
    if synthetic:
        assert block["license"] == "apache-2.0"
        assert "synthetic" in block["tags"]
        assert not [name for name in block if name.startswith(("extra_gated", "license_"))]


def test_an_unknown_place_is_an_error(tmp_path, monkeypatch):
    text = (bundled("dataset_cards") / "chestx-det.md").read_text()
    (tmp_path / "chestx-det.md").write_text(text + "\n{{n_images}} {{n_imags}} {{colour}}\n")
    monkeypatch.setattr(card, "bundled", lambda _: tmp_path)
    with pytest.raises(ValueError, match=r"dataset_cards/chestx-det.md: no value for the placeholders colour, n_imags"):
        rendered("chestx-det")
    with pytest.raises(ValueError, match=r"'chexlocalize' needs a card: dataset_cards/chexlocalize.md is missing"):
        rendered("chexlocalize")


def test_configs_keep_their_own_features_through_the_card():
    from datasets import Features, Value
    from datasets.info import DatasetInfosDict
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCardData

    small = Features({"a": Value("string"), "b": Value("int8")})
    configs = [
        Config("localization", {"test": (3, 100), "validation": (2, 50)}, small, default=True),
        Config("ratings", {"test": (7, 10)}, ratings_features()),
    ]
    block, _ = front_matter(rendered("chexlocalize", configs=configs))
    infos = DatasetInfosDict.from_dataset_card_data(DatasetCardData(**block))
    assert infos["localization"].features == small
    assert infos["ratings"].features == ratings_features()
    assert {name: split.num_examples for name, split in infos["localization"].splits.items()} == {
        "test": 3, "validation": 2,
    }  # fmt: skip
    listed = MetadataConfigs.from_dataset_card_data(DatasetCardData(**block))
    assert listed.get_default_config_name() == "localization"
    assert listed["ratings"]["data_files"] == [{"split": "test", "path": "ratings/test-*.parquet"}]


def test_broken_yaml_block_is_reported():
    with pytest.raises(ValueError, match="must begin with a YAML block"):
        front_matter("# no block\n")
    with pytest.raises(ValueError, match="is not valid YAML"):
        front_matter("---\na: [\n---\n")


def test_the_private_card_tells_that_it_is_private():
    features = KINDS["findings"].table.features(FINDINGS)
    config = Config("multilabel", {"holdout": (1, 10)}, features, default=True)
    text = private_card(FINDINGS, configs=[config], n_rows=1)
    assert "The references of 1 study, without pixels. **Never publish" in text
    assert front_matter(text)[0]["license_name"] == "private"


def test_every_column_and_config_has_a_meaning():
    for name, kind in KINDS.items():
        benchmark = next(row for row in BENCHMARKS.values() if row.kind == name)
        assert not set(kind.table.features(benchmark)) - set(column_meanings())
        assert kind.config in config_meanings()


def test_a_localization_card_counts_what_was_built(tmp_path):
    text = (localization_folder(tmp_path, holdout=True) / "README.md").read_text()
    # 6 patients of one image: 3 public, 3 private
    assert "| `released` | 3 | 3 | 3 | 3 | public |" in text
    assert "| `holdout` | 3 |  |  |  | private |" in text
    assert "| Edema | 3 | 100.0% | 3 | 3 | 0 | 3 |" in text
    assert "3 images are held out" in text
    assert "the config `holdout_inputs` has their inputs without references" in text
    assert "Version 1.0.0, 3 images" in " ".join(text.split())


def test_a_findings_card_counts_what_was_built(tmp_path):
    text = (findings_folder(tmp_path) / "README.md").read_text()
    # six studies; odd ones have two images; 0 and 3 have Edema and Mass, the others Edema
    assert "| `test` | 9 | 6 | 6 | 18 | public |" in text
    assert "| Edema | 6 | 100.0% |" in text
    assert "| Mass | 2 | 33.3% |" in text
    assert "Labels per study: 1 in 4, 2 in 2. Images per study: 1 in 3, 2 in 3." in text
    assert "| `test` | 0 | 6 | 0 |" in text  # agreement
    assert "| sex | F | 6 |" in text


def test_a_tasks_card_counts_what_was_built(tmp_path):
    text = (tasks_folder(tmp_path) / "README.md").read_text()
    # tasks 0 to 3; 1 and 3 are temporal and have a prior image: 4 + 2 images
    assert "| `test` | 4 | 6 | 4 | 4 | 4 | public |" in text
    assert "| diagnosis support | 2 |" in text
    assert "| needs the earlier study | 2 |" in text
    assert "| mean clinical relevance | 5.00 (n = 4) |" in text
    # each of two readers rates each of four tasks: 4 and 5 for model a
    assert "16 ratings by 2 readers" in text
    assert "| a | 4.50 (n = 8) | 4.50 (n = 8) | 5.00 (n = 8) |" in text
    assert "not scored" in text


def test_n_holdout_counts_rows_in_the_words_of_the_kind():
    texts = {name: rendered(name, n_holdout=2) for name in ("chexlocalize", "reveal-cxr", "rexecution")}
    assert "2 images are held out" in texts["chexlocalize"]
    assert "2 studies are held out" in texts["reveal-cxr"]
    assert "2 tasks are held out" in texts["rexecution"]
    assert "asks for every finding of every image" in " ".join(
        rendered("chexlocalize", n_holdout=2, asks="all").split()
    )
