"""Galleries of released cases for a board, with a check that they contain no held-out case.

The operator prepares a gallery (``reveal-leaderboard gallery``) and passes its folder to the server; by default no
image is shown. Before the server starts, each gallery is compared with the public manifests, so the server needs no
references of a holdout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.dataset.tables import IDS
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.viewer.gallery import CaseSource, prepare_gallery
from reveal_bench.viewer.serving import Galleries, Gallery
from reveal_leaderboard.boards.catalogue import Published

SHOWN = 3
COLUMNS = [name for name, what in IDS.items() if what != "patient"]


def open_galleries(folders: Iterable[Path], published: Sequence[Published]) -> Galleries:
    """Return the galleries in `folders`, for a server of `published` benchmarks.

    Raises
    ------
    ValueError
        If a folder is not a gallery, its benchmark is not served, a benchmark has two galleries, or a gallery shows a
        held-out case.
    """
    galleries = [Gallery.of_folder(folder) for folder in folders]
    served = {one.name for one in published}
    for gallery in galleries:
        if gallery.benchmark not in served:
            rule = f"must belong to a benchmark that this server serves ({', '.join(sorted(served))})"
            raise ArgumentError("gallery", rule, gallery.benchmark)
        check_gallery(gallery, [one.manifest_file for one in published])
    return Galleries(galleries)


def check_gallery(gallery: Gallery, manifests: Iterable[Path]) -> None:
    """Refuse a gallery with a case or an image that is in one of the `manifests` of held-out cases.

    Raises
    ------
    ValueError
        If the gallery shows such a case; the message contains the case's id.
    """
    for manifest in manifests:
        held_out = sorted(gallery.ids & _manifest_ids(manifest))
        if held_out:
            named = ", ".join(held_out[:SHOWN]) + (" ..." if len(held_out) > SHOWN else "")
            raise ArgumentError(
                "gallery", "must not show a case whose references are held out",
                f"{len(held_out):,} of {gallery.benchmark}: {named}",
            )  # fmt: skip


def prepare_board_gallery(
    benchmark: str,
    dataset: Path,
    split: str,
    predictions: Mapping[str, Path],
    out: Path,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> int:
    """Write a gallery of `benchmark`, with `options` of :class:`~reveal_bench.viewer.gallery.CaseSource`; return its
    number of cases.

    Raises
    ------
    ValueError
        If the folder is of another benchmark, or one of the cases is held out in another split.
    """
    info = read_folder_info(dataset)
    if info.benchmark != benchmark:
        raise ArgumentError("dataset", f"must be a dataset folder of {benchmark}", f"one of {info.benchmark}")
    source = CaseSource(dataset, split, predictions, **options)
    private = [name for name, one in info.splits.items() if one.get("references") == "private"]
    manifests = [dataset / "manifest" / f"{name}.parquet" for name in private]
    check_gallery(Gallery(source.index, source.read), manifests)
    return prepare_gallery(source, out, progress=progress)


def _manifest_ids(manifest: Path) -> set[str]:
    """Return the ids of the images, studies and tasks in a public manifest."""
    import pyarrow.parquet as pq

    names = [name for name in pq.read_schema(manifest).names if name in COLUMNS]
    ids: set[str] = set()
    for column in pq.read_table(manifest, columns=names).to_pydict().values():
        for value in column:
            ids.update(value if isinstance(value, list) else [value])
    return ids
