"""Example of a model of your own: train it on a dataset folder, and predict another split by `run_callable`.

    python docs/example_model.py DATASET OUT [SPLIT]

The model learns where each finding is from the masks of the released split, or of the first split with masks other than
SPLIT. The image is reduced to 16 x 16 cells. Features of a cell are its position, its grey value, the values around it,
and its differences from the mirror image. From these, boosted trees estimate the proportion of the cell that the
finding covers; the map of these proportions is the answer. The script needs scikit-learn
(``pip install 'reveal-bench[evaluate]'``). It shows the interface; its scores do not compete with those of a network.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

import reveal_bench
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.masks import decode_mask
from reveal_bench.models.pictures import SplitImages

CELLS, FINE, REACH = 16, 64, 2
"""Cells per side; pixels per side of the image that texture is computed from; cells around a cell on each side."""

Array = npt.NDArray[np.float64]


def squeezed(image: Image.Image, side: int) -> Array:
    """Return the whole image as (side, side) grey values in [0, 255]."""
    return np.asarray(image.resize((side, side), Image.Resampling.BOX), np.float64)


def describe(image: Image.Image) -> Array:
    """Return the features of every cell, shape (256, n_features)."""
    fine = squeezed(image, FINE)
    fine = (fine - fine.mean()) / (fine.std() + 1e-6)
    parts = fine.reshape(CELLS, FINE // CELLS, CELLS, FINE // CELLS)
    grey, texture = parts.mean(axis=(1, 3)), parts.std(axis=(1, 3))
    padded = np.pad(grey, REACH, mode="edge")
    window = 2 * REACH + 1
    around = np.lib.stride_tricks.sliding_window_view(padded, (window, window)).reshape(CELLS, CELLS, -1)
    row, column = np.mgrid[:CELLS, :CELLS]
    own = np.stack([row, column, texture, grey - grey[:, ::-1], texture - texture[:, ::-1]], axis=-1)
    return np.concatenate([around, own], axis=-1).reshape(CELLS * CELLS, -1)


def learn(folder: Path, split: str) -> dict[str, HistGradientBoostingRegressor]:
    """Return a regression of the covered proportion of a cell for every finding that the split shows."""
    pictures = SplitImages(folder, split)
    features: dict[str, list[Array]] = {}
    shares: dict[str, list[Array]] = {}
    for record in reveal_bench.read_localization(folder, split):
        seen = describe(pictures.open(record.image_id))
        for annotation in record.annotations:
            if annotation.reader == "ground_truth" and annotation.rle is not None and annotation.area_px > 0:
                mask = Image.fromarray(decode_mask(annotation.rle).astype(np.uint8) * 255)
                features.setdefault(annotation.finding, []).append(seen)
                shares.setdefault(annotation.finding, []).append(squeezed(mask, CELLS).ravel() / 255)
    models = {}
    for finding, described in features.items():
        model = HistGradientBoostingRegressor(max_iter=30, learning_rate=0.2, max_leaf_nodes=15, random_state=0)
        models[finding] = model.fit(np.concatenate(described), np.concatenate(shares[finding]))
    return models


def main(folder: Path, out: Path, split: str = "validation") -> None:
    """Train on one split, predict `split`, and print the command that scores the predictions."""
    having = [name for name in read_folder_info(folder).splits if any(folder.glob(f"localization/{name}-*.parquet"))]
    others = sorted((name for name in having if name != split), key=lambda name: name != "released")
    if not others:
        sys.exit(f"{folder} has no split with masks to learn from except {split}")
    with threadpool_limits(1):  # with so little data, threads wait for each other longer than they work
        models = learn(folder, others[0])

        def predict(image: Image.Image, finding: str) -> dict[str, Any] | None:
            if finding not in models:
                return None  # not in the training split: no answer, which counts as a miss
            return {"heat_map": models[finding].predict(describe(image)).reshape(CELLS, CELLS)}

        run = reveal_bench.run_callable(predict, folder, split, threshold="otsu", out=out, name="example-boosted-cells")
    verb = "score" if split in having else "lint"  # only the maintainer has the references of a private holdout
    print(  # a script, not the library
        f"learnt {len(models)} findings from split {others[0]}, answered {len(run.predictions)} questions; next:\n"
        f"reveal-bench {verb} {out} {folder}"
    )


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python docs/example_model.py DATASET OUT [SPLIT]")
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
