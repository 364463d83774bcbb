"""The pool that a benchmark is chosen from, without pixels: reports, facts, suggested labels of any number of studies.

They are the studies of ``write_reveal(stage="pool")`` with the same seed: same ids, labels, sides, words of reports,
suggestions, and headers of the first film. Everything is synthetic, and ``SYNTHETIC.txt`` says so. ::

    reports.csv     study, patient, report
    suggested.csv   study, patient, labels: what a fallible labeller read in the report, right with the probability
                    SUGGESTION_RIGHT of :mod:`reveal_bench.phantom.votes`; separated by "; ", "None" for none
    facts.csv       study and :data:`FACTS`; blank where the header of the first film says nothing
    truth.jsonl     study_uid, case_id, labels, sides, suggested, age, sex, race, patient_class

A report names the sides of findings as they are drawn. So films are drawn here, too, as far as it takes to know them,
but never rendered: that is most of the time.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from reveal_bench.phantom.dicom_headers import draw_header
from reveal_bench.phantom.reports import write_report
from reveal_bench.phantom.reveal import NOTICE, RARE, TRANSFER_SYNTAXES
from reveal_bench.phantom.reveal_findings import DEVICE_CHANCE, FRONTAL, draw_reveal_film, sides
from reveal_bench.phantom.reveal_pixels import draw_storage
from reveal_bench.phantom.reveal_studies import RevealStudy, studies
from reveal_bench.phantom.votes import draw_votes
from reveal_bench.study_records import age_band

__all__ = ["FACTS", "PoolStudy", "pool_studies", "write_pool"]

DEMOGRAPHICS = ("age_band", "sex", "race", "patient_class")
"""In the words of :mod:`reveal_bench.study_records`."""
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
"""Column -> DICOM keyword. Texts are as in the header, but for mAs, made from ExposureInuAs or else Exposure; the
spacing is PixelSpacing where the other is missing."""
FACTS = (*DEMOGRAPHICS, *ACQUISITION)
"""Columns of facts.csv: those of Tables 1 and S2 of paper 004."""

FIXED_SIDES = {
    "Aneurysm": "left",
    "Cardiomegaly": "left",
    "COPD": "bilateral",
    "Interstitial opacity": "bilateral",
    "Lymphadenopathy": "bilateral",
}
"""Label -> where :mod:`.reveal_findings` draws it in every patient."""
DRAWING_ORDER = (
    "Airspace opacity", "Pleural effusion", "Pneumothorax", "COPD", "Interstitial opacity", "Lung nodule", "Lung mass",
    "Aneurysm", "Hiatal hernia", "Lymphadenopathy", "Pleural thickening",
)  # fmt: skip
"""In which findings take their random numbers; Cardiomegaly takes none. Tubes and lines come after the third."""
BEFORE_DEVICES = DRAWING_ORDER[:3]
SHAPES_THE_BODY = ("Cardiomegaly", "Aneurysm", "Lymphadenopathy")

CHUNK = 200
"""Studies that a process makes at a time."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PoolStudy:
    """All that the tables say about a study; `facts` by column."""

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
    """Write the tables; studies stream, so any number of them needs the same memory.

    Parameters
    ----------
    out : new or empty folder
    n_studies : paper 004 had 13,735
    seed : same seed, same bytes; study k does not depend on `n_studies`
    workers : processes, by default one per core; the bytes do not depend on it
    progress : called with (studies done, studies in all)

    Returns
    -------
    dict with the number of studies, of patients, and of studies whose suggested labels are right

    Raises
    ------
    ValueError
        If `out` is not empty or a number is below 1.
    """
    out, workers = Path(out), workers if workers is not None else os.cpu_count() or 1
    if n_studies < 1 or workers < 1:
        raise ValueError(f"`n_studies` and `workers` must be at least 1, got {n_studies} and {workers}")
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"`out` must be a new or empty folder, got {out}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "SYNTHETIC.txt").write_text(NOTICE, encoding="utf-8")
    n_right, last_patient, n_patients = 0, -1, 0
    with ExitStack() as stack:
        reports = _csv(stack, out / "reports.csv", ("study", "patient", "report"))
        suggested = _csv(stack, out / "suggested.csv", ("study", "patient", "labels"))
        facts = _csv(stack, out / "facts.csv", ("study", *FACTS))
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
    """What the tables say about some studies of the pool."""
    return [_pool_study(study) for study in some]


def _made(n_studies: int, seed: int, workers: int) -> Iterator[PoolStudy]:
    """All studies in order, a chunk at a time."""
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
    """Label -> side, drawing no more than what comes before the last label whose side is random."""
    random = [label for label in DRAWING_ORDER if label in study.labels and label not in FIXED_SIDES]
    if not random:
        return {label: FIXED_SIDES[label] for label in study.labels}
    needed = {*DRAWING_ORDER[: DRAWING_ORDER.index(random[-1]) + 1], *SHAPES_THE_BODY}
    lean = replace(study, labels=tuple(label for label in study.labels if label in needed))
    if random[-1] in BEFORE_DEVICES:
        lean = replace(lean, patient_class="outpatient")  # no tubes are drawn
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
    """The header of the first film, from the random numbers that wrote it: those of its storage come before."""
    image = study.images[0]
    rng = study.rng(31, image.number)
    draw_storage(rng, force={k: v for k, v in RARE.get(study.index, {}).items() if k not in ("syntax", "meta")})
    if "syntax" not in RARE.get(study.index, {}):
        rng.choice(list(TRANSFER_SYNTAXES), p=list(TRANSFER_SYNTAXES.values()))
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


def _csv(stack: ExitStack, path: Path, columns: tuple[str, ...]) -> Any:
    writer = csv.writer(stack.enter_context(path.open("w", newline="", encoding="utf-8")), lineterminator="\n")
    writer.writerow(columns)
    return writer


def _text(value: Any) -> str:
    return "" if value is None else str(value)
