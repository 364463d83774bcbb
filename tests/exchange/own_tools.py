"""Opens exported folders with the tools whose formats they have, and prints the contents as JSON.

Run by ``make soak`` with the interpreter of an environment of its own: FiftyOne 1.22.1 (Apache-2.0), label-studio-sdk
2.1.2 (Apache-2.0) and datumaro 1.13 (MIT) are too heavy for the tests' own. FiftyOne wants a MongoDB server; here
mongomock (ISC) stands in for it, so that FiftyOne's own reader runs without one.

    python own_tools.py CVAT_FOLDER LABEL_STUDIO_FOLDER FIFTYONE_FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def open_cvat(folder: str) -> dict[str, Any]:
    import datumaro
    import numpy as np

    kinds: dict[str, int] = {}
    n_pixels = 0
    images = datumaro.Dataset.import_from(folder, "cvat")
    for one in (annotation for image in images for annotation in image.annotations):
        kinds[one.type.name] = kinds.get(one.type.name, 0) + 1
        n_pixels += int(np.count_nonzero(one.image)) if one.type.name == "mask" else 0
    return {"images": len(images), "kinds": kinds, "foreground": n_pixels}


def open_label_studio(folder: str) -> dict[str, Any]:
    from label_studio_sdk.converter.brush import decode_rle
    from label_studio_sdk.label_interface import LabelInterface

    setup = LabelInterface((Path(folder) / "config.xml").read_text(encoding="utf-8"))
    setup.validate()
    kinds: dict[str, int] = {}
    n_pixels = 0
    tasks = json.loads((Path(folder) / "tasks.json").read_text(encoding="utf-8"))
    for annotation in (one for task in tasks for one in task["annotations"]):
        assert setup.validate_annotation(annotation), annotation["result"][0]["id"]
        for region in annotation["result"]:
            kinds[region["type"]] = kinds.get(region["type"], 0) + 1
            if region["type"] == "brushlabels":
                words = decode_rle(region["value"]["rle"])
                alpha = words.reshape(region["original_height"], region["original_width"], 4)[..., 3]
                n_pixels += int((alpha > 0).sum())
    return {"images": len(tasks), "kinds": kinds, "foreground": n_pixels}


def open_fiftyone(folder: str) -> dict[str, Any]:
    os.environ |= {"FIFTYONE_DO_NOT_TRACK": "1", "FIFTYONE_DATABASE_URI": "mongodb://localhost:1"}
    import mongoengine
    import mongomock
    import pymongo

    client = mongomock.MongoClient()
    client._closed = False
    connect = mongoengine.connect
    pymongo.MongoClient = lambda *_, **__: client
    mongoengine.connect = lambda db=None, **_: connect(db, mongo_client_class=pymongo.MongoClient)

    import fiftyone
    import fiftyone.core.odm.database as database
    import numpy as np

    database._validate_db_version = lambda *_, **__: None
    dataset = fiftyone.Dataset.from_dir(folder, dataset_type=fiftyone.types.FiftyOneDataset)
    kinds: dict[str, int] = {}
    n_pixels = 0
    for sample in dataset:
        assert Path(sample.filepath).is_file(), sample.filepath
        for name in sample.field_names:
            lists = {"Detections": "detections", "Keypoints": "keypoints", "Polylines": "polylines"}
            part = lists.get(type(sample[name]).__name__)
            for label in sample[name][part] if part else ():
                kinds[type(label).__name__] = kinds.get(type(label).__name__, 0) + 1
                n_pixels += int(np.count_nonzero(label.mask)) if getattr(label, "mask", None) is not None else 0
    return {"images": len(dataset), "kinds": kinds, "foreground": n_pixels}


if __name__ == "__main__":
    cvat, label_studio, fiftyone_folder = sys.argv[1:]
    opened = {"cvat": open_cvat(cvat), "label-studio": open_label_studio(label_studio)}
    print(json.dumps({**opened, "fiftyone": open_fiftyone(fiftyone_folder)}))  # noqa: T201
