"""Reader of the mapping: a YAML file in which the user says what the columns of a table of studies mean. ::

    table: labels.csv                     # path without .., relative to the mapping or the download;
                                          # sheet: NAME if a workbook has several sheets
    study_key: {column: StudyUID, matches: StudyInstanceUID}
    labels:
      list: {column: Findings, separator: ";", synonyms: {Erguss: Pleural effusion}}
      # or  wide: {Effusion: Pleural effusion, PTX: Pneumothorax}     cells 1/0, yes/no, true/false
      # or  json: {column: labels}
    agreement: {column: Agreement, values: {"3 of 3": three_of_three, "2 of 3": two_of_three}}
    n_agree_all: {column: N}
    # or  reader: {column: Reader}         a row per study and reader; majority labels
    demographics:
      age: {column: Age}                  # in years; or age: {from: header}
      sex: {column: Sex, values: {Female: F, Male: M}}
    split: {column: Set, values: {dev: development}}
    equipment:                            # texts of the headers that are not published as they are
      manufacturer: left out
      model: {values: {ROOM 3: null, DRX-1 DR SMITH: DRX-1}}

    findings:                             # your own; by default REVEAL-CXR's twelve
      - Rib fracture
      - {name: Pneumothorax, synonyms: [PTX]}
      - {name: No finding, stands_alone: true}

Further keys: `patient_key: {column: ...}` if the headers do not identify patients; `ids: {study: COLUMN, patient:
COLUMN}` for ids that are already public; `source: REVEAL-CXR` if the download is that release; `require_deidentified:
true` to reject files whose headers do not state that they are de-identified; `other_studies: left out` if some images
belong to studies outside the dataset (without this key such images are a problem); `leave_out: [a/1.dcm]` for images to
leave out of their study, by path below the download. Set `pictures: true` if the images are PNG or JPEG files; the
study key then matches `file` (each file is a study) or `folder` (each folder is a study). With
`pictures: none` the dataset consists only of the table's labels: there are no images, and `study_key` has only a
column.
Under `labels`, `cells: {"": absent, "x": present}` defines further texts for the cells of `wide` columns; a study is
not scored on labels that are `unknown`.

`values` maps the text of a cell (case does not matter) to a term of this package, such as `F`, or to null for unknown.
Without `values` the cells must contain these terms. A blank cell means unknown, except in a column of labels. All
scalars are read as text, so `Yes`, `1` and `1.0` need no quotes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import Benchmark, own_benchmark
from reveal_bench.dicom.header import Header
from reveal_bench.findings import REVEAL_LABELS, Vocabulary, canonical_finding, hint
from reveal_bench.kinds.findings.records import AGE_BANDS, AGREEMENTS, PATIENT_CLASSES, RACES, SEXES
from reveal_bench.sources.source import BuildError, DownloadProblems, Problem, read_document

KEY_FACTS = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "PatientID", "folder", "file")
"""What a study key can match: a value in the headers, a folder that contains the images, or a file name without suffix.

The accession number is not included, because it is never read.
"""

BY_PATH = ("file", "folder")
"""Members of :data:`KEY_FACTS` that need no header."""

VOCABULARIES: dict[str, tuple[str, ...]] = {
    "age_band": AGE_BANDS,
    "sex": SEXES,
    "race": RACES,
    "patient_class": PATIENT_CLASSES,
}
EQUIPMENT = ("manufacturer", "model")
FROM_HEADER = ("age", "sex")
"""Demographic facts that the mapping may take from the DICOM headers."""

SPLIT_NAME = "the name of a split: letters, digits, _ and dots, but not `all`"
NULLS = ("", "null", "~", "Null", "NULL")
FINDING_KEYS = ("name", "synonyms", "stands_alone")
FINDING_NAME = re.compile(r"(?!macro$)[^\W_][^,;|\n\r\t]{0,79}", re.IGNORECASE)
"""Pattern of a finding's name, which excludes commas and "macro".

In answers, commas separate findings; "macro" names the average over all findings.
"""
_MOST_BYTES = 1 << 20
KEYS = (
    "table", "sheet", "study_key", "labels", "agreement", "n_agree_all", "demographics", "split", "patient_key", "ids",
    "source", "require_deidentified", "other_studies", "findings", "reader",
    "pictures", "equipment", "leave_out",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """A column and the meaning of its cells (folded text -> value, None for unknown).

    Without a column the value comes from the DICOM headers.
    """

    column: str | None
    values: Mapping[str, str | None] | None = None

    @property
    def from_header(self) -> bool:
        """True if the value comes from the DICOM headers."""
        return self.column is None


@dataclass(frozen=True, slots=True)
class LabelRule:
    """The columns with the labels. `form` is "wide", "list" or "json"; `columns` maps each wide column to its label.

    `synonyms` maps folded entries of lists to their labels.
    """

    form: str
    columns: Mapping[str, str] = field(default_factory=dict)
    column: str = ""
    separator: str = ";"
    synonyms: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyMapping:
    """A parsed mapping with the keys that the module docstring explains. `file` is its name for messages."""

    file: str
    table: str
    sheet: str | None
    key_column: str
    key_matches: str
    labels: LabelRule
    rules: Mapping[str, ColumnRule]
    """Rules for reading the facts of a study, by name of the fact.

    The names are agreement, n_agree_all, reader, age, age_band, sex, race, patient_class, split and patient_key;
    and manufacturer and model, which have no values if they are left out.
    """
    ids: Mapping[str, str]
    source: str | None
    require_deidentified: bool
    leaves_out_others: bool = False
    of_pictures: bool = False
    of_labels_only: bool = False
    leave_out: tuple[str, ...] = ()
    findings: tuple[str, ...] = REVEAL_LABELS

    @property
    def has_own_findings(self) -> bool:
        """True if the mapping lists its own findings."""
        return isinstance(self.findings, Vocabulary)

    @property
    def benchmark(self) -> Benchmark | None:
        """Benchmark of the user's own findings, or of labels without images; None for the source's benchmark."""
        if self.of_labels_only:
            return own_benchmark("own-labels", self.findings)
        return own_benchmark("own-findings", self.findings) if self.has_own_findings else None

    @property
    def without_column(self) -> list[str]:
        """Findings that are absent in every study because `labels.wide` has no column for them."""
        names = self.labels.columns.values()
        return [finding for finding in self.findings if finding not in names] if self.labels.form == "wide" else []

    def published_equipment(self, name: str, text: str | None) -> str | None:
        """Return a header's text on the `name` of :data:`EQUIPMENT` as it is published; None if it is left out."""
        rule = self.rules.get(name)
        if rule is None or text is None:
            return text
        return None if rule.values is None else rule.values.get(folded(text), text)

    def unused_equipment(self, headers: Collection[Header]) -> list[str]:
        """Return a warning for each text to leave out or rename that no header has, such as a misspelt one."""
        known = {name: {folded(getattr(header, f"{name}_raw") or "") for header in headers} for name in EQUIPMENT}
        return [
            f"{self.file}: `equipment.{name}.values` has {text!r}, which is in no header of these studies"
            for name, texts in known.items()
            if name in self.rules
            for text in self.rules[name].values or ()
            if text not in texts
        ]

    @property
    def columns(self) -> list[str]:
        """Names of all columns that the mapping refers to."""
        named = [self.key_column, self.labels.column, *self.labels.columns, *self.ids.values()]
        return [*filter(None, named), *(rule.column for rule in self.rules.values() if rule.column)]


def read_mapping(path: Path) -> StudyMapping:
    """Return the parsed mapping of a table of labels.

    Raises
    ------
    BuildError
        With all problems of the mapping.
    """
    problems = DownloadProblems()
    content = load_mapping(path, problems)
    mapping = None if content is None else MappingParser(path.name, problems).parse(content)
    if mapping is None or problems:
        raise BuildError(problems)
    return mapping


def load_mapping(path: Path, problems: list[Problem]) -> dict[str, Any] | None:
    """Return the content of a YAML mapping, with every scalar as text.

    If the file is no YAML mapping, note a problem and return None.
    """
    content = _load(path, problems)
    if not isinstance(content, dict):
        problems += [] if problems else [Problem(path.name, None, "file", "must be a YAML mapping", "something else")]
        return None
    return content


def is_split_name(text: str) -> bool:
    """Return True if `datasets` accepts `text` as the name of a split; "all" is reserved there for all splits."""
    return text != "all" and re.fullmatch(r"\w+(\.\w+)*", text, re.ASCII) is not None


def _load(path: Path, problems: list[Problem]) -> Any:
    """Return the content of a YAML file with every scalar as text; note a problem for a repeated key."""
    import yaml

    class Loader(yaml.BaseLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):  # nested aliases expand a few lines to billions of values
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.MarkedYAMLError(problem="an alias (*) must be written out", problem_mark=mark)
            return super().compose_node(parent, index)

    def construct(loader: yaml.BaseLoader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        pairs: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str) or key in pairs:
                line = key_node.start_mark.line + 1
                problems.append(Problem(path.name, line, str(key), "must be text and unique", "a second time"))
            else:
                pairs[key] = loader.construct_object(value_node, deep=True)
        return pairs

    Loader.add_constructor("tag:yaml.org,2002:map", construct)
    try:
        return yaml.load(read_document(path, _MOST_BYTES), Loader)
    except FileNotFoundError:
        problems.append(Problem(path.name, None, "file", "must exist", "none"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).replace('"<unicode string>", ', "").split())
        problems.append(Problem(path.name, None, "file", "must be YAML in UTF-8", reason[:300]))
    return None


class MappingParser:
    """Converter of parsed YAML to a :class:`StudyMapping`; it adds all problems to `problems`."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems
        self.findings: tuple[str, ...] = REVEAL_LABELS

    def parse(self, content: dict[str, Any]) -> StudyMapping:
        """Return the mapping of a table of studies."""
        self._only(content, KEYS, "mapping")
        if "findings" in content:
            self.findings = self._own_findings(content["findings"])
        key = self._mapping(content.get("study_key"), "study_key", ("column", "matches"))
        matches = str(key.get("matches", KEY_FACTS[0]))
        if matches not in KEY_FACTS:
            self._fail("study_key.matches", f"must be one of {', '.join(KEY_FACTS)}", hint(matches, KEY_FACTS))
        rules: dict[str, ColumnRule] = {
            name: self._rule(content[name], name, AGREEMENTS if name == "agreement" else None)
            for name in ("agreement", "n_agree_all", "reader", "split", "patient_key")
            if name in content
        }
        if "reader" in rules and (counted := rules.keys() & {"agreement", "n_agree_all"}):
            rule = "must be left out if the mapping names a column of readers, from which agreement is counted"
            self._fail(min(counted), rule, "both")
        demographics = self._mapping(content.get("demographics", {}), "demographics", ("age", *VOCABULARIES))
        if {"age", "age_band"} <= demographics.keys():
            self._fail("demographics", "must have either `age` or `age_band`", "both")
        for name, rule in demographics.items():
            rules[name] = self._rule(rule, f"demographics.{name}", VOCABULARIES.get(name))
        for name, rule in self._mapping(content.get("equipment", {}), "equipment", EQUIPMENT).items():
            rules[name] = self._equipment(rule, f"equipment.{name}")
        ids = self._mapping(content.get("ids", {}), "ids", ("study", "patient"))
        pictures = content.get("pictures", "false")
        of_labels_only = pictures == "none"
        of_pictures = not of_labels_only and self._flag(pictures, "pictures", others=("none",))
        if of_labels_only and "matches" in key:
            self._fail("study_key.matches", "must be left out: without images there is nothing to match", matches)
        if of_pictures and matches not in BY_PATH:
            self._fail("study_key.matches", f"must be {' or '.join(BY_PATH)}, because pictures have no header", matches)
        for name in ("age", "sex") if of_pictures or of_labels_only else ():
            if name in rules and rules[name].from_header:
                self._fail(f"demographics.{name}", "must name a column, because pictures have no header", "header")
        others = content.get("other_studies", "problem")
        if others not in ("problem", "left out"):
            self._fail("other_studies", "must be 'problem' or 'left out'", _quote_value(others))
        return StudyMapping(
            file=self.file,
            table=self._path_within(content.get("table"), "table"),
            sheet=content.get("sheet") or None,
            key_column=self._text(key.get("column"), "study_key.column"),
            key_matches=matches,
            labels=self._labels(content.get("labels")),
            rules=rules,
            ids={name: self._text(column, f"ids.{name}") for name, column in ids.items()},
            source=content.get("source") or None,
            require_deidentified=self._flag(content.get("require_deidentified", "false"), "require_deidentified"),
            leaves_out_others=others == "left out",
            of_pictures=of_pictures,
            of_labels_only=of_labels_only,
            leave_out=self._leave_out(content.get("leave_out", [])),
            findings=self.findings,
        )

    def _leave_out(self, content: Any) -> tuple[str, ...]:
        if not isinstance(content, list) or not all(isinstance(path, str) for path in content):
            self._fail("leave_out", "must be a list of files below the download", _quote_value(content))
            return ()
        return tuple(content)

    def _own_findings(self, content: Any) -> Vocabulary:
        """Return the vocabulary of the mapping's findings and their synonyms, in the order of the mapping."""
        if not isinstance(content, list) or not content:
            self._fail(
                "findings",
                f"must be a list of names or mappings with {', '.join(FINDING_KEYS)}",
                _quote_value(content),
            )
            return Vocabulary()
        names: list[str] = []
        terms: dict[str, dict[str, Any]] = {}
        for entry in content:
            finding = self._mapping({"name": entry} if isinstance(entry, str) else entry, "findings", FINDING_KEYS)
            name = self._text(finding.get("name"), "findings.name")
            if name and not FINDING_NAME.fullmatch(name):
                rule = "must begin with a letter or digit, have at most 80 characters but no , ; or |, and not be macro"
                self._fail("findings.name", rule, repr(name[:90]))
            synonyms, alone = finding.get("synonyms", []), finding.get("stands_alone", "false")
            if not isinstance(synonyms, list) or not all(isinstance(text, str) and text for text in synonyms):
                self._fail(f"findings.{name}.synonyms", "must be a list of non-empty texts", _quote_value(synonyms))
                synonyms = []
            term: dict[str, Any] = {"synonyms": synonyms} if synonyms else {}
            if self._flag(alone, f"findings.{name}.stands_alone"):
                term["stands_alone"] = True
            names.append(name)
            terms |= {name: term} if term else {}
        try:
            return Vocabulary.of(names, terms)
        except ArgumentError as error:
            self._fail("findings", error.rule, str(error.value))
            return Vocabulary(names)

    def _labels(self, content: Any) -> LabelRule:
        forms = ("wide", "list", "json")
        section = self._mapping(content, "labels", (*forms, "cells"))
        names = [form for form in forms if form in section]
        if len(names) != 1:
            self._fail("labels", f"must have one of {', '.join(forms)}", ", ".join(names) or "none")
            return LabelRule("list")
        form, body = names[0], section[names[0]]
        cells = self._mapping(section.get("cells", {}), "labels.cells", None)
        for text, meaning in cells.items():
            if meaning not in ("present", "absent", "unknown"):
                self._fail(f"labels.cells.{text}", "must be 'present', 'absent' or 'unknown'", repr(meaning))
        if form == "wide":
            columns = self._named_labels(body, "labels.wide", is_unique=True)
            return LabelRule(form, columns, cells={folded(text): word for text, word in cells.items()})
        keys = ("column", "synonyms", *(("separator",) if form == "list" else ()))
        inner = self._mapping(body, f"labels.{form}", keys)
        separator = inner.get("separator", ";")
        if not isinstance(separator, str) or not separator:
            self._fail(f"labels.{form}.separator", "must be a non-empty text", repr(separator))
        column = self._text(inner.get("column"), f"labels.{form}.column")
        named = self._named_labels(inner.get("synonyms", {}), f"labels.{form}.synonyms")
        synonyms = {folded(text): label for text, label in named.items()}
        return LabelRule(form, column=column, separator=separator, synonyms=synonyms)

    def _named_labels(self, content: Any, name: str, *, is_unique: bool = False) -> dict[str, str]:
        columns: dict[str, str] = {}
        for column, label in self._mapping(content, name, None).items():
            known = canonical_finding(str(label), self.findings)
            if known is None:
                rule = f"must be one of {which_labels(self.findings)} ({', '.join(self.findings)})"
                self._fail(f"{name}.{column}", rule, hint(str(label), self.findings))
            elif is_unique and known in columns.values():
                self._fail(f"{name}.{column}", "must be a label of one column only", repr(known))
            else:
                columns[column] = known
        return columns

    def _rule(self, content: Any, name: str, vocabulary: Sequence[str] | None) -> ColumnRule:
        fact = name.removeprefix("demographics.")
        if fact in FROM_HEADER and isinstance(content, dict) and "from" in content:
            source = self._mapping(content, name, ("from",)).get("from")
            if source != "header":
                self._fail(f"{name}.from", "must be header", repr(source))
            return ColumnRule(None)
        keys = ("column", "values") if vocabulary is not None or name == "split" else ("column",)
        section = self._mapping(content, name, keys)
        values: dict[str, str | None] = {}
        for text, value in self._mapping(section.get("values", {}), f"{name}.values", None).items():
            word = None if value in NULLS else value
            if word is not None and vocabulary is not None and word not in vocabulary:
                self._fail(
                    f"{name}.values.{text}", f"must be one of {', '.join(vocabulary)}", hint(str(word), vocabulary)
                )
            if name == "split" and not is_split_name(word or ""):
                self._fail(f"{name}.values.{text}", f"must be {SPLIT_NAME}", _quote_value(word))
            values[folded(text)] = word
        return ColumnRule(self._text(section.get("column"), f"{name}.column"), values or None)

    def _equipment(self, content: Any, name: str) -> ColumnRule:
        if content == "left out":
            return ColumnRule(None)
        if not isinstance(content, dict):
            self._fail(name, "must be 'left out' or a mapping with values", _quote_value(content))
            return ColumnRule(None)
        texts: dict[str, str | None] = {}
        values = self._mapping(self._mapping(content, name, ("values",)).get("values"), f"{name}.values", None)
        for text, word in values.items():
            texts[folded(text)] = None if word in NULLS else self._text(word, f"{name}.values.{text}")
        return ColumnRule(None, texts)

    def _mapping(self, content: Any, name: str, keys: Sequence[str] | None) -> dict[str, Any]:
        if not isinstance(content, dict):
            self._fail(name, "must be a mapping" + (f" with {', '.join(keys)}" if keys else ""), _quote_value(content))
            return {}
        if keys is not None:
            self._only(content, keys, name)
        return content

    def _only(self, content: dict[str, Any], keys: Sequence[str], name: str) -> None:
        for key in content:
            if key not in keys:
                self._fail(name, f"must only have keys among {', '.join(keys)}", hint(key, keys))

    def _text(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or not value:
            self._fail(name, "must be text", _quote_value(value))
            return ""
        return value

    def _path_within(self, value: Any, name: str) -> str:
        text = self._text(value, name)
        if Path(text).is_absolute() or ".." in Path(text).parts or "\0" in text:
            self._fail(name, "must be a path within the download, without ..", _quote_value(value))
        return text

    def _flag(self, value: Any, name: str, others: Sequence[str] = ()) -> bool:
        if str(value).casefold() not in ("true", "false"):
            self._fail(name, f"must be {' or '.join(('true', 'false', *others))}", _quote_value(value))
        return str(value).casefold() == "true"

    def _fail(self, field: str, rule: str, value: str) -> None:
        self.problems.append(Problem(self.file, None, field, rule, value))


def which_labels(findings: Sequence[str]) -> str:
    """Return how messages refer to the findings: as the mapping's own or as REVEAL-CXR's twelve labels."""
    return "the mapping's findings" if isinstance(findings, Vocabulary) else "the twelve labels"


def folded(text: str) -> str:
    """Return `text` in lower case with single spaces, so that texts can be compared."""
    return " ".join(text.split()).casefold()


def _quote_value(value: Any) -> str:
    return "none" if value in (None, "") else str(value)[:80]
