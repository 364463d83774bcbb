"""Tasks like ReXecution's: a user's own task file and ratings on studies of MIMIC-CXR-JPG.

Source: paper 001. This source cannot reproduce ReXecution's 100 tasks, because their texts, study ids and ratings are
not public. Only the rubric and the prompts that generated candidate tasks are public.

:mod:`reveal_bench.sources.rexecution_files` explains the columns of the files,
:mod:`reveal_bench.sources.mimic_cxr_jpg` the tree of pictures.

Conversion
-----------------
* The download is a folder with ``tasks.csv`` (.tsv, .xlsx, .json, .jsonl) and optionally ``ratings.csv``, or the task
  file itself. The MIMIC-CXR-JPG tree is in the same folder, or in the folder `pictures`.
* There is one record per task, all in the split "test". Its images are all images of the study, in the order of the
  metadata. Ids are MIMIC-CXR-JPG's subject, study and DICOM ids, which are pseudonyms.
* A task has a prior study if ``prior_study_id`` is given. The prior study must be of the same patient and, if dates are
  known, earlier. A task of the category measurement_temporal may lack a prior study, as a cardiothoracic ratio needs
  none; a warning counts such tasks.
* Reference boxes must be inside an image of the task; a box may omit its image only if the task has a single image.
* Ratings become the config `ratings`; in a holdout, the ratings of held-out tasks are private, too. The rubric becomes
  the config `rubric`.

With `keep_going` a task with a problem is left out together with its ratings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import hint
from reveal_bench.kinds.images import StudyImage
from reveal_bench.kinds.tasks.records import CATEGORIES, RUBRIC, ReferenceBox, TaskRecord
from reveal_bench.kinds.tasks.rows import rating_row, ratings_features
from reveal_bench.sources.boxes import absent_pictures, is_synthetic, no_pictures
from reveal_bench.sources.mimic_cxr_jpg import (
    ImageFault,
    MimicStudy,
    find_trees,
    look_up_studies,
    study_images,
    tree_files,
)
from reveal_bench.sources.rexecution_files import (
    SUFFIXES,
    TaskLine,
    TaskRatingRow,
    find_tables,
    parse_ratings,
    parse_tasks,
)
from reveal_bench.sources.source import (
    READERS_PUBLISHED,
    SYNTHETIC_MARKER,
    DownloadProblems,
    Extra,
    Inspection,
    Pixels,
    Problem,
    SourceData,
    finish,
    published_texts,
    table_features,
)

SPLIT = "test"
TASKS, RATINGS = "tasks", "ratings"


def detect(root: Path) -> float:
    """Return 0.9 if `root` is or contains a task file ``tasks``, 0.95 if a folder also has ratings, else 0."""
    root = Path(root)
    if root.is_file():
        return 0.9 if root.stem.casefold() == TASKS and root.suffix.casefold() in SUFFIXES else 0.0
    return (0.95 if find_tables(root, RATINGS) else 0.9) if find_tables(root, TASKS) else 0.0


def inspect(root: Path, *, pictures: Path | None = None) -> Inspection:
    """Return counts, problems and warnings of the task and ratings files and of their studies.

    Pictures may be missing. Counts are not compared with published counts, because the tasks are the user's own.
    """
    root = Path(root)
    parsed = _parse(root, pictures, need_pictures=False)
    tree = {f"mimic {role}": path for role, path in tree_files(parsed.tree).items()} if parsed.tree else {}
    pictured = [image.picture is not None for images in parsed.images.values() for image in images]
    files = {TASKS: parsed.task_file, RATINGS: parsed.rating_file, **tree}
    return Inspection(
        source="rexecution",
        root=root,
        files={role: _shown(path, root) for role, path in files.items() if path is not None},
        counts=_counts(parsed),
        problems=parsed.problems,
        warnings=[*parsed.warnings, *absent_pictures(pictured), *_notes(parsed)],
        synthetic=is_synthetic(root, parsed.own_files),
    )


def read(root: Path, *, pixels: Pixels = "embed", keep_going: bool = False, pictures: Path | None = None) -> SourceData:
    """Return the tasks (split "test"), their ratings and the rubric.

    Parameters
    ----------
    root : folder of the task file, or that file
    pixels : with "withhold", pictures are needed only if the metadata do not state their sizes
    keep_going : leave out tasks and ratings with a problem instead of raising
    pictures : folder with the MIMIC-CXR-JPG tree, at any depth; by default `root`

    Raises
    ------
    BuildError
        With every problem of the two files, and of the studies and pictures that they name.
    """
    parsed = _parse(Path(root), pictures, need_pictures=pixels == "embed")
    whole = [problem for problem in parsed.problems if not _is_of_a_line(problem, parsed)]
    if whole:  # a broken file or header belongs to no single task, so no task can be left out for it
        finish(parsed.problems, parsed.warnings, keep_going=False)
    bad = {(problem.file, problem.row) for problem in parsed.problems}
    left_out = finish(parsed.problems, parsed.warnings, keep_going=keep_going)
    parsed.tasks = [task for task in parsed.tasks if (_name(parsed.task_file), task.line) not in bad]
    good = [line for line in parsed.ratings if (_name(parsed.rating_file), line.line) not in bad]
    task_ids = {task.task_id for task in parsed.tasks}
    parsed.ratings = [line for line in good if line.rating.task_id in task_ids]
    if len(parsed.ratings) < len(good):
        parsed.warnings.append(f"{len(good) - len(parsed.ratings):,} ratings are left out together with their tasks")
    features = table_features(criterion="string", score="int8", description="string")
    extras = [Extra("rubric", features, [entry._asdict() for entry in RUBRIC], split="rubric")]
    if parsed.ratings:
        rows = [rating_row(line.rating) for line in parsed.ratings]
        extras.insert(0, Extra(RATINGS, ratings_features, rows, key="task_id"))
        parsed.warnings += published_texts(READERS_PUBLISHED, (line.rating.reader for line in parsed.ratings))
    records = [_record(task, parsed) for task in parsed.tasks]
    if pixels == "withhold":
        n_without = len({image.image_id for images in parsed.images.values() for image in images if not image.picture})
        parsed.warnings += no_pictures(n_without)
    return SourceData(
        {SPLIT: records},
        [*parsed.warnings, *_notes(parsed)],
        extras,
        _set_aside(_folder(Path(root)), parsed),
        left_out=left_out,
        synthetic=is_synthetic(Path(root), parsed.own_files),
    )


@dataclass
class _ParsedFiles:
    """Parsed contents of a download; `images` maps the ids of studies in the tree to their images."""

    task_file: Path | None = None
    rating_file: Path | None = None
    tree: Path | None = None
    tasks: list[TaskLine] = field(default_factory=list)
    ratings: list[TaskRatingRow] = field(default_factory=list)
    studies: dict[str, MimicStudy] = field(default_factory=dict)
    images: dict[str, tuple[StudyImage, ...]] = field(default_factory=dict)
    problems: DownloadProblems = field(default_factory=DownloadProblems)
    warnings: list[str] = field(default_factory=list)

    @property
    def own_files(self) -> list[Path]:
        """The task file and the ratings file, if they exist."""
        return [path for path in (self.task_file, self.rating_file) if path is not None]


def _parse(root: Path, pictures: Path | None, *, need_pictures: bool) -> _ParsedFiles:
    parsed = _ParsedFiles()
    folder = _folder(root)
    if root.is_dir() and not find_tables(root, TASKS):
        raise ArgumentError(
            "root", f"must contain a task file, {' or '.join(TASKS + suffix for suffix in SUFFIXES)}", root
        )
    parsed.task_file = root if root.is_file() else _one_table(folder, TASKS, parsed)
    parsed.rating_file = _one_table(folder, RATINGS, parsed)
    parsed.tree = _one_tree(folder if pictures is None else Path(pictures), pictures, parsed.problems)
    if parsed.task_file is not None:
        parsed.tasks = parse_tasks(parsed.task_file, parsed.problems, parsed.warnings)
    if parsed.rating_file is not None:
        parsed.ratings = parse_ratings(parsed.rating_file, parsed.problems, parsed.warnings)
        _check_rated_tasks(parsed)
    else:
        parsed.warnings.append("no ratings file, so the dataset has only tasks and the rubric")
    if parsed.tree is not None and parsed.tasks:
        study_ids = {study for task in parsed.tasks for study in (task.study_id, task.prior_study_id) if study}
        parsed.studies = look_up_studies(parsed.tree, study_ids, parsed.problems, parsed.warnings)
        _check_studies(parsed, need_pictures=need_pictures)
    return parsed


def _one_table(folder: Path, stem: str, parsed: _ParsedFiles) -> Path | None:
    tables = find_tables(folder, stem)
    if len(tables) == 1 or (not tables and stem == RATINGS):
        return tables[0] if tables else None
    names = ", ".join(path.name for path in tables) or "none"
    rule = f"must be one file, {', '.join(stem + suffix for suffix in SUFFIXES)}"
    parsed.problems.append(Problem(folder.name or ".", None, stem, rule, names))
    return None


def _one_tree(place: Path, pictures: Path | None, problems: list[Problem]) -> Path | None:
    trees = find_trees(place)
    if len(trees) == 1:
        return trees[0]
    where = "the folder of the task file" if pictures is None else "the folder of the pictures"
    rule = f"must be in {where} (mimic-cxr-2.*-metadata.csv.gz and files/), or its folder be named for pictures"
    if trees:
        rule = "must be unique: name its folder for pictures"
    names = ", ".join(_shown(tree, place) for tree in trees) or "none"
    problems.append(Problem(place.name or ".", None, "MIMIC-CXR-JPG tree", rule, names))
    return None


def _check_rated_tasks(parsed: _ParsedFiles) -> None:
    known = {task.task_id for task in parsed.tasks}
    for line in parsed.ratings if known else ():
        task_id = line.rating.task_id
        if task_id and task_id not in known:
            rule = f"must be a task of {_name(parsed.task_file)}"
            parsed.problems.append(Problem(_name(parsed.rating_file), line.line, "task_id", rule, hint(task_id, known)))


def _check_studies(parsed: _ParsedFiles, *, need_pictures: bool) -> None:
    """Note problems of all studies' pictures, and of what each task states about its studies."""
    faults: dict[str, list[ImageFault]] = {}
    for study_id, study in parsed.studies.items():
        parsed.images[study_id], faults[study_id] = study_images(study, need_pictures=need_pictures)
    for task in parsed.tasks:
        of_task = [*_study_faults(task, parsed.studies), *_box_faults(task, _images(task, parsed))]
        for column, study_id in _named_studies(task):
            of_task += [fault._replace(field=f"{column}: {fault.field}") for fault in faults.get(study_id, ())]
        parsed.problems += [fault.problem(_name(parsed.task_file), task.line) for fault in of_task]


def _named_studies(task: TaskLine) -> list[tuple[str, str]]:
    pairs = [("study_id", task.study_id), ("prior_study_id", task.prior_study_id)]
    return [(column, study_id) for column, study_id in pairs if study_id]


def _study_faults(task: TaskLine, studies: Mapping[str, MimicStudy]) -> list[ImageFault]:
    """Return problems of a task's studies, which must be in the tree, of one patient, and the prior study earlier."""
    rule = "must be a study of the MIMIC-CXR-JPG tree"
    faults = [
        ImageFault(column, rule, study_id) for column, study_id in _named_studies(task) if study_id not in studies
    ]
    study, prior = studies.get(task.study_id), studies.get(task.prior_study_id or "")
    if study is None:
        return faults
    if task.subject_id not in (None, study.subject_id):
        value = f"{task.subject_id}, but the tree says {study.subject_id}"
        faults.append(ImageFault("subject_id", "must be the study's patient", value))
    if prior is None or prior.study_id == study.study_id:
        return faults
    if study.subject_id != prior.subject_id:
        value = f"{prior.study_id} of {prior.subject_id} instead of {study.subject_id}"
        faults.append(ImageFault("prior_study_id", "must be a study of the same patient", value))
    elif prior.is_before(study) is False:
        faults.append(
            ImageFault("prior_study_id", "must be earlier than `study_id`", f"{prior.study_id}, which is not")
        )
    return faults


def _box_faults(task: TaskLine, images: Sequence[StudyImage]) -> list[ImageFault]:
    """Return a problem for every reference box that is outside the images of the task."""
    by_id = {image.image_id: image for image in images}
    faults = []
    for box in task.reference_boxes if images else ():
        image = images[0] if box.image_id is None and len(images) == 1 else by_id.get(box.image_id or "")
        if image is None:
            rule = f"must name one of the {len(images)} images of the task"
            value = "none" if box.image_id is None else hint(box.image_id, by_id)
            faults.append(ImageFault("reference_boxes", rule, value))
            continue
        x, y, width, height = box.bbox_xywh
        if min(x, y) < 0 or x + width > image.width or y + height > image.height:
            rule = f"must be in the image of {image.width} x {image.height}"
            faults.append(ImageFault("reference_boxes", rule, f"{[x, y, width, height]} of {box.label!r}"))
    return faults


def _images(task: TaskLine, parsed: _ParsedFiles) -> tuple[StudyImage, ...]:
    return parsed.images.get(task.study_id, ()) + parsed.images.get(task.prior_study_id or "", ())


def _record(task: TaskLine, parsed: _ParsedFiles) -> TaskRecord:
    images = _images(task, parsed)
    return TaskRecord(
        task_id=task.task_id,
        study_id=task.study_id,
        patient_id=parsed.studies[task.study_id].subject_id,
        prompt=task.prompt,
        category=task.category,
        images=parsed.images[task.study_id],
        prior_images=parsed.images.get(task.prior_study_id or "", ()),
        indication=task.indication,
        temporal=task.temporal,
        tags=task.tags,
        question_scores=task.question_scores,
        risk_flag=task.risk_flag,
        requires_boxes=task.requires_boxes,
        reference_answer=task.reference_answer,
        reference_boxes=tuple(_named(box, images) for box in task.reference_boxes),
    )


def _named(box: ReferenceBox, images: Sequence[StudyImage]) -> ReferenceBox:
    """Return the box with the id of its image, which a task with only one image may omit."""
    return box if box.image_id is not None else replace(box, image_id=images[0].image_id)


def _is_of_a_line(problem: Problem, parsed: _ParsedFiles) -> bool:
    return isinstance(problem.row, int) and problem.file in (_name(parsed.task_file), _name(parsed.rating_file))


def _counts(parsed: _ParsedFiles) -> dict[str, int]:
    categories = Counter(task.category for task in parsed.tasks)
    ratings = [line.rating for line in parsed.ratings]
    return {
        "tasks": len(parsed.tasks),
        **{f"tasks of {category}": categories[category] for category in CATEGORIES},
        "tasks with a prior study": sum(task.temporal for task in parsed.tasks),
        "tasks that require boxes": sum(task.requires_boxes for task in parsed.tasks),
        "studies": len(parsed.studies),
        "patients": len({study.subject_id for study in parsed.studies.values()}),
        "images": sum(len(study.images) for study in parsed.studies.values()),
        "pictures": sum(image.picture is not None for images in parsed.images.values() for image in images),
        "ratings": len(ratings),
        "models": len({rating.model for rating in ratings}),
        "readers": len({rating.reader for rating in ratings}),
    }


def _notes(parsed: _ParsedFiles) -> list[str]:
    """Return warnings that count unusual tasks and images, for the maintainer to check."""
    rated = {line.rating.task_id for line in parsed.ratings}
    single = [task for task in parsed.tasks if task.category == "measurement_temporal" and not task.temporal]
    unseen = Counter(image.view_raw or "blank" for images in parsed.images.values() for image in images
                     if image.view == "UNKNOWN")  # fmt: skip
    notes: Mapping[str, Any] = {
        ("tasks of measurement_temporal have no prior study; they should ask for a measurement, not a comparison"): len(
            single
        ),
        "tasks have no rating": sum(task.task_id not in rated for task in parsed.tasks) if rated else 0,
        f"images have an unknown view ({', '.join(sorted(unseen))})": sum(unseen.values()),
    }
    return [f"{n:,} {what}" for what, n in notes.items() if n]


def _set_aside(folder: Path, parsed: _ParsedFiles) -> list[tuple[str, str]]:
    """Return (path, reason) of unused files beside the task file and at the top of the MIMIC-CXR-JPG tree."""
    tree = parsed.tree or folder
    tables = tree_files(tree)
    used = {parsed.task_file, parsed.rating_file, tables.get("split")}
    used.add(tables.get("metadata", tables.get("IMAGE_FILENAMES")))
    return [
        (_shown(path, folder), "not needed for tasks" if path in tables.values() else "no file of this dataset")
        for place in dict.fromkeys([folder, tree])
        for path in sorted(place.iterdir())
        if path.is_file() and path not in used and path.name != SYNTHETIC_MARKER
    ]


def _folder(root: Path) -> Path:
    return root.parent if root.is_file() else root


def _name(path: Path | None) -> str:
    return "" if path is None else path.name


def _shown(path: Path, root: Path) -> str:
    folder = _folder(root)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
