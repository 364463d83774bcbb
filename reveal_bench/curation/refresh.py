"""Make a new version of a benchmark, with corrected labels, new studies, or a new holdout that replaces a retired one.

The rules
---------
* A refresh reads the folder of the previous version, leaves it unchanged, and writes into a new curation folder.
* Corrected labels alone raise the minor version (1.0.0 -> 1.1.0); adding or removing studies raises the major version
  (-> 2.0.0), because two major versions ask different questions.
* Studies that stay in the benchmark keep their half. With `retire_holdout`, the previous holdout is released, and all
  new studies form the new holdout. Otherwise new studies are split by the rule of :mod:`reveal_bench.curation.split`.
* New studies of patients who were released in any version, or are in the previous version, are left out and counted.
  ``history.parquet`` lists all studies ever released, and their patients. A study that earlier versions list under
  another patient id is refused, because then ids do not identify patients.
* Nothing more is published about new patients than about the previous version's patients.
* ``labels_diff.json`` lists the changes; like all files of a curation, it contains labels of the holdout.

Source: paper 004 has no refresh; the rules are from the project's curation specification, step 7.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reveal_bench.curation.balance import read_facts
from reveal_bench.curation.folder import STEPS, CurationError, CurationFolder, Progress, StepRecord
from reveal_bench.curation.report_tables import read_rows
from reveal_bench.curation.split import LABELS_NAME, MAPPING_NAME, draw_halves, write_benchmark
from reveal_bench.curation.tables import (
    HALVES,
    Labels,
    Placed,
    Released,
    Selected,
    label_counts,
    read_table,
    write_table,
)
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.sources.mapping import VOCABULARIES
from reveal_bench.sources.study_labels import Fail, labels_of_cell
from reveal_bench.tables import TableRow
from reveal_bench.tables import read_table as read_input_table

RELEASED, HOLDOUT = HALVES
HISTORY_NAME = "history.parquet"
WRITES = ("split.parquet", HISTORY_NAME, "labels_diff.json", "benchmark/labels.csv", "benchmark/mapping.yaml")
STEPS_OF_A_REFRESH = ("refresh", "report")
SHOWN = 10
"""Maximum number of studies named in an error."""
CORRECTION_COLUMNS = ("study", "labels", "why")


@dataclass(frozen=True, slots=True)
class Correction:
    """A study's corrected labels, with the reason for the correction."""

    study_id: str
    labels: Labels
    why: str


def refresh(
    folder: CurationFolder,
    before: CurationFolder,
    *,
    corrections: Path | None = None,
    additions: CurationFolder | None = None,
    facts: Path | None = None,
    key: str = "study",
    retire_holdout: bool = False,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Make the next version of a benchmark, by the rules in the module's docstring.

    Writes ``split.parquet``, ``history.parquet``, ``labels_diff.json`` and ``benchmark/``.

    Parameters
    ----------
    folder : folder of the new version, in which no step except `report` may have been done
    before : folder of the previous version, split or refreshed
    corrections : table with the columns study, labels (separated by ";", "None" for none) and why
    additions : a curation whose selection is added
    facts : table with the demographics of the added studies, as for the split; only with `additions`. Only columns that
        the previous version publishes are used
    key : as for the split
    retire_holdout : release the previous holdout; `additions` form the new one

    Raises
    ------
    CurationError
        If nothing changes, an earlier folder is not ready or is the same as `folder`, a retired holdout would have no
        replacement, `facts` would be unused, or an earlier version lists a new study under another patient.
    BuildError
        If `corrections` or `facts` have problems; the error lists all of them.
    """
    _check_folders(folder, before, additions)
    if corrections is None and additions is None:
        raise CurationError("a refresh needs corrected labels or new studies, got neither")
    if retire_holdout and additions is None:
        raise CurationError("a holdout can be retired only if new studies take its place, got none")
    if facts is not None and additions is None:
        raise CurationError("`facts` must describe new studies, got no `additions`")
    last = "refresh" if before.record("refresh") is not None else "split"
    version_before = str(
        before.need(last).counts["version"] if last == "refresh" else before.need(last).settings["version"]
    )
    version = bump(version_before, is_major=additions is not None)
    files = {"split before": before.path("split.parquet"), "labels before": before.path(f"benchmark/{LABELS_NAME}")}
    files["mapping before"] = before.path(f"benchmark/{MAPPING_NAME}")
    if last == "refresh":
        files["history before"] = before.path(HISTORY_NAME)
    if additions is not None:
        additions.need("select")
        files["additions"] = additions.path("selection.parquet")
    files |= {role: Path(path) for role, path in (("corrections", corrections), ("facts", facts)) if path is not None}

    def work(scratch: Path) -> Mapping[str, Any]:
        placed = read_table(files["split before"], Placed)
        history = read_table(files["history before"], Released) if last == "refresh" else []
        corrected = read_corrections(corrections, placed) if corrections is not None else []
        wanted = read_table(files["additions"], Selected) if additions is not None else []
        _check_patients(wanted, history, placed)
        ever = {one.patient_id for one in history} | {one.patient_id for one in placed if one.half == RELEASED}
        known = {one.patient_id for one in placed}
        new = sorted((one for one in wanted if one.patient_id not in ever | known), key=lambda one: one.study_id)
        if additions is not None and not new:
            raise CurationError(f"`additions` must bring in new patients, got none in {len(wanted)} studies")
        entered = _placed(new, folder, version, retire_holdout=retire_holdout)
        after = _corrected(placed, corrected)
        if retire_holdout:
            after = [replace(one, half=RELEASED) for one in after]
        after = sorted([*after, *entered], key=lambda one: one.study_id)
        write_table(scratch / "split.parquet", after, Placed)
        write_table(scratch / HISTORY_NAME, _history(history, placed, after, version_before, version), Released)
        diff = _diff(placed, after, corrected, version_before, version)
        (scratch / "labels_diff.json").write_text(json.dumps(diff, indent=1) + "\n", encoding="utf-8")
        mapping = files["mapping before"].read_text(encoding="utf-8")
        demographics = _demographics(files["labels before"], facts, [one.study_id for one in entered], key)
        write_benchmark(scratch / "benchmark", after, demographics=demographics, mapping=mapping)
        if progress is not None:
            progress(len(after), len(after))
        return {
            "version": version,
            "version_before": version_before,
            "corrected": len(corrected),
            "added": {half: sum(one.half == half for one in entered) for half in HALVES},
            "left_out_released_before": sum(one.patient_id in ever for one in wanted),
            "left_out_in_holdout": sum(one.patient_id in known - ever for one in wanted),
            "retired": sum(one.half == HOLDOUT for one in placed) if retire_holdout else 0,
            "studies": {half: sum(one.half == half for one in after) for half in HALVES},
        }

    settings = {"key": key, "retire_holdout": retire_holdout, "version": version}
    return folder.run("refresh", settings, work, files=files, writes=WRITES, redo=redo)


def _check_folders(folder: CurationFolder, before: CurationFolder, additions: CurationFolder | None) -> None:
    """Check that the refresh writes into none of the folders that it reads."""
    for role, other in (("`before`", before), ("`additions`", additions)):
        if other is not None and other.root.resolve() == folder.root.resolve():
            raise CurationError(f"a refresh must start in a new curation folder, got the folder of {role}")
    if additions is not None and additions.root.resolve() == before.root.resolve():
        raise CurationError("`additions` must be another curation than `before`, got the same folder")
    done = [step for step in STEPS if step not in STEPS_OF_A_REFRESH and folder.record(step) is not None]
    if done:
        raise CurationError(
            f"a refresh must start in a new curation folder, got one in which these steps were done: {', '.join(done)}"
        )


def _check_patients(wanted: Iterable[Selected], history: Iterable[Released], placed: Iterable[Placed]) -> None:
    """Check that the studies of this and earlier versions still have the same patients."""
    patient_of = {one.study_id: one.patient_id for one in history}
    patient_of |= {one.study_id: one.patient_id for one in placed}
    other = sorted(one.study_id for one in wanted if patient_of.get(one.study_id, one.patient_id) != one.patient_id)
    if other:
        more = f" and {len(other) - SHOWN:,} more" if len(other) > SHOWN else ""
        raise CurationError(
            "`additions` must use the patient ids of earlier versions, got other patient ids for the studies"
            f" {', '.join(other[:SHOWN])}{more}"
        )


def bump(version: str, *, is_major: bool) -> str:
    """Return the next major or minor version number.

    Examples
    --------
    >>> bump("1.4.2", is_major=False), bump("1.4.2", is_major=True)
    ('1.5.0', '2.0.0')
    """
    major, minor, _ = (int(part) for part in version.split("."))
    return f"{major + 1}.0.0" if is_major else f"{major}.{minor + 1}.0"


def read_corrections(path: Path, placed: Sequence[Placed]) -> list[Correction]:
    """Return the corrected labels, by study id.

    Raises
    ------
    BuildError
        If a study is not in the benchmark or is in two rows, a label is unknown, the labels are the study's present
        ones, or a reason is missing; the error lists all such rows.
    """
    labels_of = {one.study_id: one.labels for one in placed}

    def read(row: TableRow, fail: Fail) -> Correction:
        study, text, why = (row[name].strip() for name in CORRECTION_COLUMNS)
        entries = [part.strip() for part in text.split(";") if part.strip()]
        labels = labels_of_cell(entries or [""], "labels", fail)
        if study not in labels_of:
            fail("study", "must be a study of the previous version", study or "a blank")
        elif labels == labels_of[study]:
            fail("labels", "must differ from the present labels", text)
        if not why:
            fail("why", "must give the reason for the change", "a blank")
        return Correction(study, labels, why)

    return sorted(read_rows(path, CORRECTION_COLUMNS, None, read), key=lambda one: one.study_id)


def _placed(new: Sequence[Selected], folder: CurationFolder, version: str, *, retire_holdout: bool) -> list[Placed]:
    """Return new studies with their halves; if all are of one patient, they go to the holdout."""
    if retire_holdout or len({one.patient_id for one in new}) < 2:
        halves = [HOLDOUT] * len(new)
    else:
        halves = [HALVES[int(is_holdout)] for is_holdout in draw_halves(new, folder.rng("refresh"))]
    return [
        Placed(one.study_id, one.patient_id, one.labels, one.n_agree_all, half, version)
        for one, half in zip(new, halves, strict=True)
    ]


def _corrected(placed: Sequence[Placed], corrections: Iterable[Correction]) -> list[Placed]:
    labels = {one.study_id: one.labels for one in corrections}
    return [
        replace(one, labels=labels[one.study_id], n_agree_all=None) if one.study_id in labels else one for one in placed
    ]


def _history(
    history: Sequence[Released], placed: Sequence[Placed], after: Sequence[Placed], before: str, version: str
) -> list[Released]:
    """Return every study ever released, with the first version known to have released it."""
    first = {one.study_id: one for one in history}
    for one in placed:
        if one.half == RELEASED:
            first.setdefault(one.study_id, Released(one.study_id, one.patient_id, one.since or before))
    for one in after:
        if one.half == RELEASED:
            first.setdefault(one.study_id, Released(one.study_id, one.patient_id, version))
    return [first[study] for study in sorted(first)]


def _diff(
    placed: Sequence[Placed], after: Sequence[Placed], corrected: Sequence[Correction], before: str, version: str
) -> dict[str, Any]:
    """Return the contents of ``labels_diff.json``, which only the maintainer may see."""
    was, now = ({one.study_id: one for one in some} for some in (placed, after))
    return {
        "from": before,
        "to": version,
        "corrected": [
            {
                "study_id": one.study_id,
                "half": now[one.study_id].half,
                "labels_before": list(was[one.study_id].labels),
                "labels": list(one.labels),
                "why": one.why,
            }
            for one in corrected
        ],
        "added": [
            {"study_id": one.study_id, "half": one.half, "labels": list(one.labels)}
            for one in after
            if one.study_id not in was
        ],
        "released": [one.study_id for one in placed if now[one.study_id].half != one.half],
        "prevalence": {
            half: {label: [_count(placed, half)[label], _count(after, half)[label]] for label in REVEAL_LABELS}
            for half in HALVES
        },
    }


def _count(some: Sequence[Placed], half: str) -> dict[str, int]:
    return label_counts(one.labels for one in some if one.half == half)


def _demographics(labels_before: Path, facts: Path | None, new: Sequence[str], key: str) -> dict[str, dict[str, str]]:
    """Return the published demographics of each study: previous ones unchanged, new ones from the facts.

    Raises
    ------
    CurationError
        If the facts have none of the published columns.
    """
    table = read_input_table(labels_before)
    names = [name for name in VOCABULARIES if name in table]
    demographics = {name: {row["study_id"]: row[name] for row in table.rows} for name in names}
    if facts is not None and new:
        columns = read_facts(facts, new, key=key).columns
        known = [column for column in columns if column.name in demographics]
        if not known:
            raise CurationError(
                f"`facts` must have a column that the previous version publishes ({', '.join(names) or 'it has none'}),"
                f" got {', '.join(column.name for column in columns)}"
            )
        for column in known:
            demographics[column.name].update(zip(new, column.texts, strict=True))
    return demographics
