"""Export references and predictions to the formats of other tools, and import predictions from these formats.

A *form* is a format of annotations. It has a module in this package, with :func:`Form.write` and :func:`Form.read`, and
a line in :data:`FORMS`. Forms do not depend on the kind of benchmark, because they write and read drawings and labels
as :class:`reveal_bench.kinds.cases.Annotations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from reveal_bench.kinds.cases import Annotations

__all__ = ["FORMS", "Form", "form_named"]

FORMS = {
    "coco": "COCO dataset (JSON)",
    "cvat": "CVAT for images 1.1 (XML)",
    "label-studio": "Label Studio tasks (JSON)",
    "fiftyone": "FiftyOne dataset",
    "dicom-seg": "DICOM segmentations",
    "dicom-sr": "DICOM structured reports (TID 1500)",
}
"""Name of each form -> its description."""


class Form(Protocol):
    """A module that writes and reads one format of annotations.

    Attributes
    ----------
    FILE : name of the file, or folder of files, that contains the annotations
    IMAGES : name of the folder of pictures beside FILE
    """

    FILE: str
    IMAGES: str

    def write(self, annotations: Annotations, out: Path, pictures: Mapping[str, str]) -> list[str]:
        """Write all files except the images into a folder.

        Parameters
        ----------
        pictures : image_id -> file name in :attr:`IMAGES`, for every image

        Returns
        -------
        Sentences about the data that the form cannot store; empty if the form stores everything.

        Raises
        ------
        ArgumentError
            If the form cannot store annotations of this kind of benchmark.
        """
        ...

    def read(self, path: Path, known: Annotations) -> Annotations:
        """Read a file of this form, or a folder that contains the file.

        Parameters
        ----------
        known : images and names of the split to which the file belongs

        Raises
        ------
        ArgumentError
            If the file is not of this form, names an image or finding that the split does not have, or contains a mask
            whose size differs from the image's.
        """
        ...


def form_named(name: str) -> Form:
    """Return the module of a form in :data:`FORMS`."""
    return cast(Form, import_module(f"{__name__}.{name.replace('-', '_')}"))
