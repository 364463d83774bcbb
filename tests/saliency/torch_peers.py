"""Results of torch, OpenCV and Pillow for heat maps, used as in the published code of CheXlocalize.

Run by the python that `make soak` gives it. On standard input a list of ``{"map": rows, "size": [height, width],
"threshold": t}``; its answers are written to the file of the first argument: of each map the values at the size of the
image, the point, and the masks at Otsu's level and above the threshold. Below the folder of the second argument, each
map as a pickle that torch itself writes.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image, ImageDraw

cv2.ipp.setUseIPP(False)  # Intel's library parts symmetric histograms by a rounding of its own


def published(case: dict[str, Any]) -> dict[str, Any]:
    """Upsampled first, then scaled; strict thresholds; contours of Otsu's mask filled one by one."""
    coarse = torch.tensor(case["map"], dtype=torch.float32)[None, None]
    fine = torch.nn.functional.interpolate(coarse, size=case["size"], mode="bilinear", align_corners=False)
    values = fine.squeeze(0).squeeze(0).numpy()
    low, high = values.min(), values.max()
    scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
    place = int(np.argmax(values))
    _, above = cv2.threshold((255 * scaled).astype(np.uint8), 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
    contours, _ = cv2.findContours(above, cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
    canvas = Image.new("1", (values.shape[1], values.shape[0]))
    for contour in contours:
        if len(contour) > 1:
            ImageDraw.Draw(canvas).polygon([tuple(map(int, point[0])) for point in contour], outline=1, fill=1)
    return {"fine": values, "place": place, "otsu": np.asarray(canvas, bool), "above": scaled > case["threshold"]}


def main() -> None:
    target, folder = Path(sys.argv[1]), Path(sys.argv[2])
    answers: dict[str, Any] = {}
    for i, case in enumerate(json.load(sys.stdin)):
        answers |= {f"{i}_{name}": value for name, value in published(case).items()}
        tensor = torch.tensor(case["map"], dtype=torch.float32)[None, None]
        (folder / f"{i}_Edema_map.pkl").write_bytes(pickle.dumps({"map": tensor, "prob": 0.25, "task": "Edema"}))
    np.savez(target, **answers)


if __name__ == "__main__":
    main()
