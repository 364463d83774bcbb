"""``croissant.json``: machine-readable description of a dataset folder, with the fields on responsible AI (RAI).

The format is Croissant 1.1 with the RAI vocabulary 1.0 (MLCommons). Every Parquet file is a FileObject with its sha256.
The files of a config form a FileSet, and its rows a RecordSet whose fields follow the config's Features.
`<config>_splits` lists the splits; the field `split` is derived from a file's name. Prose comes from the sections of
the card's template; page, creators, date and use conditions come from :mod:`reveal_bench.dataset.origin`. The same
folder and card always give the same text.

The descriptions are the sections of a card template without their tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from reveal_bench.benchmarks import Benchmark
from reveal_bench.dataset.card import (
    PLACE,
    SYNTHETIC_LICENCE,
    Config,
    card_template,
    front_matter,
    sections,
    template_name,
)
from reveal_bench.dataset.card_tables import column_meanings, config_meanings
from reveal_bench.dataset.citation import SPDX, bibtex
from reveal_bench.dataset.origin import describe_origin
from reveal_bench.kinds import KINDS

if TYPE_CHECKING:
    from datasets import Features

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`{\[])")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_CODE = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)


def section_prose(template: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return a dict from heading to plain text of a card's sections.

    Code, tables, headings and sentences with a placeholder that `values` does not fill are left out. A blank line
    separates paragraphs.
    """
    _, body = front_matter(template)
    return {heading: _plain(text, values) for heading, text in sections(body).items()}


def _plain(text: str, values: Mapping[str, str]) -> str:
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", _CODE.sub("", text)):
        if paragraph.lstrip().startswith(("|", "#")):
            continue
        filled = PLACE.sub(lambda match: values.get(match[1], match[0]), " ".join(paragraph.split()))
        sentences = [sentence for sentence in _SENTENCE_END.split(filled) if not PLACE.search(sentence)]
        paragraphs.append(_LINK.sub(r"\1 (\2)", " ".join(sentences)).replace("**", ""))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


Json = dict[str, Any]

CONFORMS_TO = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")
PARQUET = "application/x-parquet"
YAML = "application/yaml"
ENCODINGS = {".parquet": PARQUET, ".json": "application/json", ".md": "text/markdown", ".yaml": YAML, ".cff": YAML}
RAI = {
    "rai:dataCollection": ("Collection",),
    "rai:dataAnnotationProtocol": ("Annotation",),
    "rai:personalSensitiveInformation": ("Privacy", "Demographics"),
    "rai:dataBiases": ("Enrichment and prevalence",),
    "rai:dataLimitations": ("Known holes", "Contamination"),
    "rai:dataUseCases": ("Intended and out-of-scope use",),
    "rai:dataReleaseMaintenancePlan": ("Maintenance",),
}
"""RAI field -> sections of the card that provide its text."""
REQUIRED = (
    "@context", "@type", "conformsTo", "description", "license", "name", "url", "creator", "datePublished",
    "distribution",
)  # fmt: skip
"""Fields that specification 1.1 requires ("Required", "Modified and Added Properties")."""
DATA_TYPES = {
    "string": "sc:Text", "bool": "sc:Boolean", "int8": "cr:Int8", "int16": "cr:Int16", "int32": "cr:Int32",
    "int64": "cr:Int64", "float32": "cr:Float32", "float64": "cr:Float64",
}  # fmt: skip

_TERMS = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileProperty fileObject fileSet format "
    "includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
CONTEXT: Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "duo": "http://purl.obolibrary.org/obo/DUO_",
    "odrl": "http://www.w3.org/ns/odrl/2/",
    "prov": "http://www.w3.org/ns/prov#",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "description": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS.split()},
}
"""The JSON-LD context of specification 1.1, with the vocabularies for use conditions and provenance."""


def render_croissant(
    benchmark: Benchmark,
    configs: Sequence[Config],
    *,
    version: str,
    synthetic: bool,
    files: Mapping[str, tuple[str, int]],
) -> str:
    """Return the text of ``croissant.json``.

    Parameters
    ----------
    files : dict from path, relative to the folder, to (sha256, size in bytes) of the described files

    Raises
    ------
    ValueError
        If a section of the card's template has no prose, but a RAI field needs it.
    """
    template = card_template(benchmark)
    title = ("Synthetic stand-in for " if synthetic else "") + benchmark.title
    block, _ = front_matter(template)
    prose = section_prose(template, {"title": title, "version": version})
    document: Json = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": list(CONFORMS_TO),
        "name": title,
        "description": _description(prose, synthetic),
        "license": _licence(block, synthetic),
        **describe_origin(benchmark, synthetic=synthetic),
        "citeAs": bibtex(template),
        "version": version,
        "inLanguage": block.get("language", ["en"]),
        "keywords": [*block.get("tags", ()), *(["synthetic"] if synthetic else [])],
        "isAccessibleForFree": True,
        **_rai(prose, benchmark, synthetic),
        "distribution": list(_distribution(configs, files)),
        "recordSet": list(_record_sets(benchmark, configs, files)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _description(prose: Mapping[str, str], synthetic: bool) -> str:
    made_up = "SYNTHETIC: a program drew every picture and reference. " if synthetic else ""
    return f"{made_up}{prose.get('Summary', '')}\n\nNot for clinical use."


def _licence(block: Json, synthetic: bool) -> str:
    name = SYNTHETIC_LICENCE if synthetic else str(block.get("license", ""))
    if name in SPDX:
        return f"https://spdx.org/licenses/{SPDX[name]}"
    return str(block.get("license_link") or block.get("license_name") or name)


def _rai(prose: Mapping[str, str], benchmark: Benchmark, synthetic: bool) -> dict[str, str]:
    fields = {name: "\n\n".join(filter(None, map(prose.get, headings))) for name, headings in RAI.items()}
    empty = sorted(name for name, text in fields.items() if not text)
    if empty:
        places = ", ".join(f"{name} from {' and '.join(RAI[name])}" for name in empty)
        raise ValueError(f"{template_name(benchmark)}: sections must contain prose for {places}")
    if not synthetic:
        return fields
    return {
        name: f"About the real dataset, for which this is a synthetic stand-in: {text}" for name, text in fields.items()
    }


def _distribution(configs: Sequence[Config], files: Mapping[str, tuple[str, int]]) -> Iterator[Json]:
    for path, (sha256, size) in sorted(files.items()):
        yield {
            "@type": "cr:FileObject",
            "@id": path,
            "name": PurePosixPath(path).name,
            "contentUrl": path,
            "contentSize": f"{size} B",
            "encodingFormat": ENCODINGS.get(PurePosixPath(path).suffix, "application/octet-stream"),
            "sha256": sha256,
        }
    meanings = config_meanings()
    for config in configs:
        yield _file_set(config.name, meanings.get(config.name, ""), [f"{split}-*.parquet" for split in config.splits])
    yield _file_set("manifest", meanings["manifest"], ["*.parquet"])


def _file_set(config: str, description: str, patterns: Sequence[str]) -> Json:
    return {
        "@type": "cr:FileSet",
        "@id": f"{config}-files",
        "name": f"{config}-files",
        "description": f"Files of the config {config}: {description}",
        "encodingFormat": PARQUET,
        "includes": [f"{config}/{pattern}" for pattern in patterns],
    }


def _record_sets(
    benchmark: Benchmark, configs: Sequence[Config], files: Mapping[str, tuple[str, int]]
) -> Iterator[Json]:
    from datasets import Features

    for config in configs:
        yield from _record_set(config.name, list(config.splits), config.features, r"-.+\.parquet")
    splits = sorted(PurePosixPath(path).stem for path in files if re.fullmatch(r"manifest/[^/]+\.parquet", path))
    manifest = Features.from_arrow_schema(KINDS[benchmark.kind].questions.manifest_schema())
    yield from _record_set("manifest", splits, manifest, r"\.parquet")


def _record_set(config: str, splits: Sequence[str], features: Features, ending: str) -> Iterator[Json]:
    """Yield two record sets: a config's splits and its rows. `ending` is what follows the split in file names."""
    listing = f"{config}_splits"
    yield {
        "@type": "cr:RecordSet",
        "@id": listing,
        "name": listing,
        "description": f"Splits of the config {config}.",
        "dataType": "cr:Split",
        "key": {"@id": f"{listing}/name"},
        "field": [{"@type": "cr:Field", "@id": f"{listing}/name", "name": "name", "dataType": "sc:Text"}],
        "data": [{f"{listing}/name": split} for split in splits],
    }
    split_field = {
        "@type": "cr:Field",
        "@id": f"{config}/split",
        "name": "split",
        "description": "Split of the row.",
        "dataType": "sc:Text",
        "source": {
            "fileSet": {"@id": f"{config}-files"},
            "extract": {"fileProperty": "fullpath"},
            # mlcroissant turns this into a glob to filter by split, and in joins applies it to the bare name
            "transform": {"regex": f"(?:{config}/)?([^/]+?)(?:{ending})?$"},
        },
        "references": {"field": {"@id": f"{listing}/name"}},
    }
    yield {
        "@type": "cr:RecordSet",
        "@id": config,
        "name": config,
        "description": config_meanings().get(config, f"rows of the config {config}"),
        "field": [split_field, *(_field(config, (name,), feature) for name, feature in features.items())],
    }


def _field(config: str, path: tuple[str, ...], feature: Any) -> Json:
    """Return the field for a column or for a nested part of a column; `path` has the names from outer to inner."""
    from datasets import Image

    shape, inner = _array(feature)
    place = "/".join([config, *(re.sub(r"\W+", "_", name) for name in path)])
    field: Json = {"@type": "cr:Field", "@id": place, "name": path[-1]}
    if len(path) == 1:
        field["description"] = column_meanings().get(path[0], path[0])
    if shape:
        field |= {"isArray": True, "arrayShape": ",".join(map(str, shape))}
    if isinstance(inner, dict):
        field["subField"] = [_field(config, (*path, name), below) for name, below in inner.items()]
        return field
    if isinstance(inner, Image):
        field["dataType"] = "sc:ImageObject"
        path = (*path, "bytes")
        if shape:
            field["repeated"] = True  # mlcroissant 1.1 needs this to read lists of pictures
    else:
        field["dataType"] = _data_type(inner)
    codes = ", ".join(f"{code} {name}" for code, name in enumerate(getattr(inner, "names", None) or ()))
    if codes:
        field["description"] = f"{field.get('description', path[-1])}; codes: {codes}"
    field["source"] = {"fileSet": {"@id": f"{config}-files"}, "extract": {"column": path[0]}}
    if len(path) > 1:
        field["source"]["transform"] = {"jsonPath": ".".join(map(_step, path[1:]))}
    return field


def _array(feature: Any) -> tuple[list[int], Any]:
    """Return (lengths of the nested lists, type of the innermost items); -1 stands for a variable length."""
    shape = []
    while hasattr(feature, "feature"):
        shape.append(getattr(feature, "length", -1))
        feature = feature.feature
    return shape, feature


def _data_type(feature: Any) -> str:
    if hasattr(feature, "names"):
        return "cr:Int64"
    return DATA_TYPES[feature.dtype]


def _step(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f'"{name}"'
