"""Make the pool of studies from which a benchmark is selected, without pixels, and the votes of simulated readers.

The pool has reports, facts and suggested labels of any number of studies. Ids, labels, sides, reports, suggestions and
the first image's headers equal those of ``write_reveal(stage="pool")`` with the same seed. All data are synthetic, as
``SYNTHETIC.txt`` states. The files are::

    reports.csv     study, patient, report
    suggested.csv   study, patient, labels: those that a fallible labeller extracts from the report, correct with the
                    probability SUGGESTION_RIGHT of :mod:`reveal_bench.phantom.votes`; separated by "; ", "None" for
                    none
    facts.csv       study and :data:`FACTS`; blank if the header of the first image lacks the value
    truth.jsonl     study_uid, case_id, labels, sides, suggested, age, sex, race, patient_class

Reports name the sides on which findings are drawn. Images are therefore drawn as far as their sides require, but not
rendered, which would take most of the time.

There are seventeen readers with different workloads. Table S4 of paper 004 gives the number of studies per reader. All
readers have the error rates of :mod:`reveal_bench.phantom.votes`. A vote depends only on seed, study and reader, and
not on the study's other readers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, islice
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.kinds.findings.records import age_band
from reveal_bench.phantom.choices import choose
from reveal_bench.phantom.dicom_headers import draw_header
from reveal_bench.phantom.folders import open_csv, start_folder, write_csv
from reveal_bench.phantom.reports import write_report
from reveal_bench.phantom.reveal import NOTICE, RARE, TRANSFER_SYNTAXES, write_reveal
from reveal_bench.phantom.reveal_findings import DEVICE_CHANCE, FRONTAL, draw_reveal_film, sides
from reveal_bench.phantom.reveal_pixels import draw_storage
from reveal_bench.phantom.reveal_studies import RevealStudy, studies
from reveal_bench.phantom.votes import AGREE_IF_RIGHT, AGREE_IF_WRONG, cast_votes, draw_votes

DEMOGRAPHICS = ("age_band", "sex", "race", "patient_class")
"""Demographic columns, with values spelled as in :mod:`reveal_bench.kinds.findings.records`."""
ACQUISITION = {
    "manufacturer": "Manufacturer",
    "model": "ManufacturerModelName",
    "detector_type": "DetectorType",
    "view_position": "ViewPosition",
    "distance_source_to_detector": "DistanceSourceToDetector",
    "kvp": "KVP",
    "exposure_mas": "ExposureInuAs",
    "pixel_spacing": "ImagerPixelSpacing",
}
"""Column -> DICOM keyword.

Texts are those of the header, except mAs, which are computed from ExposureInuAs or Exposure. PixelSpacing replaces a
missing ImagerPixelSpacing.
"""
FACTS = (*DEMOGRAPHICS, *ACQUISITION)
"""Columns of facts.csv, as in Tables 1 and S2 of paper 004."""

FIXED_SIDES = {
    "Aneurysm": "left",
    "Cardiomegaly": "left",
    "COPD": "bilateral",
    "Interstitial opacity": "bilateral",
    "Lymphadenopathy": "bilateral",
}
"""Label -> the side on which :mod:`.reveal_findings` draws it in every patient."""
DRAWING_ORDER = (
    "Airspace opacity", "Pleural effusion", "Pneumothorax", "COPD", "Interstitial opacity", "Lung nodule", "Lung mass",
    "Aneurysm", "Hiatal hernia", "Lymphadenopathy", "Pleural thickening",
)  # fmt: skip
"""Order in which findings draw random numbers; Cardiomegaly draws none.

Tubes and lines draw random numbers after the third finding.
"""
BEFORE_DEVICES = DRAWING_ORDER[:3]
SHAPES_THE_BODY = ("Cardiomegaly", "Aneurysm", "Lymphadenopathy")

CHUNK = 200
"""Number of studies in a process's unit of work."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PoolStudy:
    """All values of a study in the tables; `facts` maps columns of facts.csv to values."""

    study: RevealStudy
    sides: dict[str, str]
    report: str
    suggested: tuple[str, ...]
    facts: dict[str, str]


def write_pool(
    out: Path,
    n_studies: int = 13_735,
    seed: int = 0,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write the tables; studies are streamed, so memory does not depend on their number.

    Parameters
    ----------
    out : new or empty folder
    n_studies : paper 004 had 13,735
    seed : equal seeds give equal bytes; study k does not depend on `n_studies`
    workers : number of processes, by default one per core; the bytes do not depend on this number
    progress : called with (studies done, all studies)

    Returns
    -------
    dict with the number of studies, of patients, and of studies with correct suggested labels

    Raises
    ------
    ValueError
        If `out` is not empty or a number is below 1.
    """
    workers = workers if workers is not None else os.cpu_count() or 1
    if n_studies < 1 or workers < 1:
        raise ValueError(f"`n_studies` and `workers` must be at least 1, got {n_studies} and {workers}")
    out = start_folder(out, NOTICE)
    n_right, last_patient, n_patients = 0, -1, 0
    with ExitStack() as stack:
        reports = open_csv(stack, out / "reports.csv", ("study", "patient", "report"))
        suggested = open_csv(stack, out / "suggested.csv", ("study", "patient", "labels"))
        facts = open_csv(stack, out / "facts.csv", ("study", *FACTS))
        truth = stack.enter_context((out / "truth.jsonl").open("w", encoding="utf-8"))
        for n_done, one in enumerate(_made(n_studies, seed, workers), start=1):
            study = one.study
            reports.writerow([study.study_uid, study.case_id, one.report])
            suggested.writerow([study.study_uid, study.case_id, "; ".join(one.suggested) or "None"])
            facts.writerow([study.study_uid, *(one.facts[name] for name in FACTS)])
            truth.write(json.dumps(_truth(one)) + "\n")
            n_right += one.suggested == study.labels
            n_patients += study.patient != last_patient
            last_patient = study.patient
            if progress is not None:
                progress(n_done, n_studies)
    return {"studies": n_studies, "patients": n_patients, "right suggestions": n_right}


def pool_studies(some: Iterable[RevealStudy]) -> list[PoolStudy]:
    """Return the values of the tables for some studies of the pool."""
    return [_pool_study(study) for study in some]


def _made(n_studies: int, seed: int, workers: int) -> Iterator[PoolStudy]:
    """Yield all studies in order; they are computed in chunks."""
    all_of_them = islice(studies("pool", seed=seed), n_studies)
    chunks = iter(lambda: list(islice(all_of_them, CHUNK)), [])
    if workers == 1 or n_studies <= CHUNK:
        yield from chain.from_iterable(map(pool_studies, chunks))
        return
    with ProcessPoolExecutor(workers) as processes:
        while some := list(islice(chunks, 4 * workers)):
            yield from chain.from_iterable(processes.map(pool_studies, some))


def _pool_study(study: RevealStudy) -> PoolStudy:
    drawn = _sides(study)
    has_devices = study.patient_class != "outpatient" and study.rng(FRONTAL, 1).random() < DEVICE_CHANCE
    report = write_report(study, drawn, has_devices=has_devices)
    return PoolStudy(study, drawn, report, draw_votes(study).suggested, _facts(study))


def _sides(study: RevealStudy) -> dict[str, str]:
    """Return label -> side, after drawing the labels up to the last label with a random side."""
    random = [label for label in DRAWING_ORDER if label in study.labels and label not in FIXED_SIDES]
    if not random:
        return {label: FIXED_SIDES[label] for label in study.labels}
    needed = {*DRAWING_ORDER[: DRAWING_ORDER.index(random[-1]) + 1], *SHAPES_THE_BODY}
    lean = replace(study, labels=tuple(label for label in study.labels if label in needed))
    if random[-1] in BEFORE_DEVICES:
        lean = replace(lean, patient_class="outpatient")  # outpatients have no tubes
    anatomy, film = draw_reveal_film(lean, study.images[0])
    return {label: FIXED_SIDES.get(label) or sides(anatomy, film.contours[label]) for label in study.labels}


def _facts(study: RevealStudy) -> dict[str, str]:
    header = _header(study)
    facts = {name: _text(header.get(keyword)) for name, keyword in ACQUISITION.items()}
    in_micro = header.get("ExposureInuAs")
    facts["exposure_mas"] = f"{int(in_micro) / 1000:g}" if in_micro else _text(header.get("Exposure"))
    facts["pixel_spacing"] = facts["pixel_spacing"] or _text(header.get("PixelSpacing"))
    who = {"age_band": age_band(study.age), "sex": study.sex, "race": study.race, "patient_class": study.patient_class}
    return {**who, **facts}


def _header(study: RevealStudy) -> dict[Any, Any]:
    """Return the header of the first image, drawn from the same random numbers as in the complete download.

    The random numbers for the image's storage are drawn first and discarded.
    """
    image = study.images[0]
    rng = study.rng(31, image.number)
    draw_storage(rng, force={k: v for k, v in RARE.get(study.index, {}).items() if k not in ("syntax", "meta")})
    if "syntax" not in RARE.get(study.index, {}):
        choose(rng, TRANSFER_SYNTAXES)
    return draw_header(study, image, rng, plant=False)


def _truth(one: PoolStudy) -> Mapping[str, Any]:
    study = one.study
    return {
        "study_uid": study.study_uid,
        "case_id": study.case_id,
        "labels": study.labels,
        "sides": one.sides,
        "suggested": one.suggested,
        "age": study.age,
        "sex": study.sex,
        "race": study.race,
        "patient_class": study.patient_class,
    }


def _text(value: Any) -> str:
    return "" if value is None else str(value)


FINISHED = (300, 300, 300, 273, 229, 222, 213, 203, 177, 151, 140, 133, 121, 94, 57, 53, 34)
READERS = {f"reader_{number:02d}": finished for number, finished in enumerate(FINISHED, start=1)}
"""Reader -> number of finished studies (paper 004, Table S4).

The sum is 3,000, which is three readers for each of 1,000 studies.
"""

VOTE_COLUMNS = ("study", "reader", "answer", "comment", "labels")


def write_readers(path: Path, readers: Mapping[str, int] = READERS) -> None:
    """Write the table of readers and capacities that `assign` reads."""
    write_csv(path, ("reader", "capacity"), readers.items())


def write_curation_world(
    out: Path,
    n_studies: int,
    *,
    seed: int = 0,
    long_side: int = 3056,
    pixels: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the inputs of a curation: reports, facts and readers, and with `pixels` the images of the same studies.

    ``reports.csv``, ``facts.csv``, ``suggested.csv``, ``truth.jsonl`` of :func:`write_pool`,
    ``readers.csv``, and below ``films`` the DICOM files of ``write_reveal(stage="pool")``.
    """
    write_pool(out, n_studies, seed, progress=None if pixels else progress)
    write_readers(out / "readers.csv")
    if pixels:
        options: dict[str, Any] = {"seed": seed, "long_side": long_side, "progress": progress}
        write_reveal(out / "films", n_studies, stage="pool", traps=False, **options)


def write_votes(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Write rows of :func:`cast` as the table that `import-votes` reads."""
    write_csv(path, VOTE_COLUMNS, ([row[name] for name in VOTE_COLUMNS] for row in rows))


def cast(
    assignments: Iterable[tuple[str, str]],
    suggested: Mapping[str, Sequence[str]],
    truth: Mapping[str, Sequence[str]],
    seed: int,
    *,
    by_hand: bool = False,
) -> list[dict[str, str]]:
    """Return the readers' votes.

    Parameters
    ----------
    assignments : (study, reader) of every assignment
    suggested, truth : study -> suggested labels, true labels
    seed : another seed gives other votes
    by_hand : whether readers also write down their labels; otherwise there are only comments, as in paper 004

    Returns
    -------
    list of dict with :data:`VOTE_COLUMNS`, in the order of `assignments`
        `labels` is "" if the reader wrote no labels down, and "None" if the reader sees none of the twelve.

    Raises
    ------
    KeyError
        If a study is not in `suggested` or `truth`.
    """
    rows = []
    for study, reader in assignments:
        digest = sha256(f"{study}\0{reader}".encode()).digest()
        rng = np.random.default_rng([seed, *digest[:16]])
        vote, *_ = cast_votes(rng, suggested[study], truth[study])  # only the first of three votes is used
        is_written = by_hand and vote.labels is not None and vote.answer != "Agree All"
        labels = "; ".join(vote.labels or ()) or "None" if is_written else ""
        rows.append(dict(zip(VOTE_COLUMNS, (study, reader, vote.answer, vote.comment, labels), strict=True)))
    return rows


def expected_kappa(studies: Iterable[tuple[Sequence[str], Sequence[str]]]) -> float:
    """Return the exact expected kappa of a reader of :func:`cast` with the majority of a study's three readers.

    The categories are "Agree All" and any other answer; the majority includes the reader's own vote.

    Parameters
    ----------
    studies : (suggested labels, true labels) of each study
    """
    agree = np.array([AGREE_IF_RIGHT if set(a) == set(b) else AGREE_IF_WRONG for a, b in studies])
    table = np.zeros((2, 2))  # reader, majority
    for n in range(4):
        share = (comb(3, n) * agree**n * (1 - agree) ** (3 - n)).mean()
        table[:, int(n > 1)] += share * (3 - n) / 3, share * n / 3
    chance = table.sum(axis=1) @ table.sum(axis=0)
    return float((np.trace(table) - chance) / (1 - chance))
