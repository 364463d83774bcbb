"""Every config and every column that any build writes has a meaning in the card and in Croissant."""

from __future__ import annotations

import pytest

from reveal_bench.benchmarks import BENCHMARKS, SOURCES
from reveal_bench.dataset.card_tables import column_meanings, config_meanings
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.tasks.rows import ratings_features
from reveal_bench.sources import SOURCE_MODULES

TWINS = {style: name for name, (source, _) in SOURCES.items() for style in source.styles if style != "reveal-pool"}
"""Style of a synthetic download -> the source that reads it; the pool is what a curation begins with."""
EXTRAS = {
    "ms-cxr": {"phrases"},
    "vindr-cxr": {"image_labels", "readers"},
    "vinbigdata": {"readers"},
    "rsna-pneumonia": {"classes"},
    "padchest-gr": {"sentences"},
    "reveal-cxr": {"labels"},
    "midrc": {"labels", "mrale"},
    "chexpert-labels": {"readers"},
    "chexpert-competition": {"readers"},
    "rexecution": {"ratings", "rubric"},
}


def test_every_builder_has_a_twin():
    assert set(TWINS.values()) == SOURCE_MODULES.keys() - {"own-boxes"}  # whose download is anybody's


@pytest.mark.parametrize("source", TWINS)
def test_what_a_twin_is_read_as_has_a_meaning(source, twin_of):
    twin = twin_of(source)
    module = SOURCE_MODULES[TWINS[source]]
    pictures = {"pictures": twin / "pictures"} if (twin / "pictures").is_dir() else {}
    secret = {"id_key": b"k" * 32} if "id_key" in module.options else {}
    source_data = module.read(twin, pixels="embed", keep_going=True, **pictures, **secret)
    extras = {extra.config: set(extra.features()) for extra in source_data.extras}
    assert extras.keys() == EXTRAS.get(source, set())
    for config, columns in extras.items():
        assert config_meanings()[config].strip()
        assert [name for name in sorted(columns) if not column_meanings().get(name, "").strip()] == []


@pytest.mark.parametrize("name", KINDS)
def test_the_columns_of_every_kind_have_a_meaning(name):
    kind = KINDS[name]
    benchmark = next(row for row in BENCHMARKS.values() if row.kind == name)
    table = kind.table
    columns = {*table.features(benchmark), *(table.side_features(benchmark) if table.side_config else ())}
    columns |= {*ratings_features(), *kind.questions.manifest_schema().names} - {"asked"}
    assert columns - column_meanings().keys() == set()
    assert {kind.config, *filter(None, [kind.table.side_config])} <= config_meanings().keys()
