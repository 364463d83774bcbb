"""Downloads without some or all of their pictures: counts, one line for all missing pictures, and both remedies."""

from __future__ import annotations

from pathlib import Path

import pytest

from reveal_bench.sources import BuildError, detect_source
from reveal_bench.sources.source import set_aside_lines
from tests.cli.test_score import call
from tests.conftest import draw_small

APART = {
    "chexlocalize": True, "chestx-det": True, "nih-boxes": True, "ms-cxr": True, "rexecution": True,
    "rsna-pneumonia": True, "siim-acr": True, "vindr-cxr": False, "padchest-gr": False,
}  # fmt: skip
"""Sources with tables apart from their pictures -> whether a build can withhold images without pictures."""
PICTURES = {".png", ".jpg", ".dcm", ".dicom", ".zip"}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A download of each source without any picture."""
    folder = tmp_path_factory.mktemp("apart")
    for style in APART:
        draw_small(style, folder / style, 12, seed=0)
        for path in folder.joinpath(style).rglob("*"):
            if path.suffix in PICTURES:
                path.unlink()
    return {style: folder / style for style in APART}


@pytest.mark.parametrize("style", APART)
def test_inspection_counts_pictures_apart_from_tables(roots: dict[str, Path], style: str) -> None:
    inspection = detect_source(roots[style]).inspect(roots[style])
    assert [n for name, n in inspection.counts.items() if name.endswith("pictures")][-1] == 0
    (warning,) = [text for text in inspection.warnings if "no picture here" in text]
    n_images = sum(n for name, n in inspection.counts.items() if name in ("images", "train images", "test images"))
    n_images += inspection.counts.get("validation images", 0)
    assert warning.startswith(f"{n_images} of {n_images} images have no picture here: name the folder of the pictures")
    assert ("or withhold images in the build" in warning) == APART[style]


@pytest.mark.parametrize("style", APART)
def test_build_without_pictures_offers_its_options(roots: dict[str, Path], tmp_path: Path, style: str) -> None:
    refused = call("build", roots[style], "--out", tmp_path / "d", "--workers", 1, expect=1).stderr
    assert "--pictures" in refused
    assert ("--images withhold" in refused or "--images is withhold" in refused) == APART[style]
    assert len([line for line in refused.splitlines() if "picture" in line]) <= 2


def test_many_missing_pictures_are_one_line(tmp_path: Path) -> None:
    names = [f"0000000{i}_000" for i in range(1, 8)]
    rows = [f"{name}.png,Mass,1,1,20,20,,," for name in names]
    (tmp_path / "BBox_List_2017.csv").write_text(
        "\n".join(["Image Index,Finding Label,Bbox [x,y,w,h],,,", *rows]) + "\n"
    )
    (tmp_path / "00000099_000.png").touch()  # another picture
    source = detect_source(tmp_path)
    with pytest.raises(BuildError) as caught:
        source.read(tmp_path)
    line = f"7 images have no picture here: {', '.join(names[:3])}, ..."
    assert str(caught.value) == line
    assert len(caught.value.problems) == 7
    assert f"left out: {line}" in source.read(tmp_path, keep_going=True).warnings
    refused = call("build", tmp_path, "--out", tmp_path / "d", "--workers", 1, expect=1).stderr.splitlines()
    assert refused[:2] == [
        f"error: {line}",
        "give --pictures FOLDER with the missing pictures, or --images withhold to build without them",
    ]


def test_set_aside_files_are_one_line_per_reason() -> None:
    files = [(f"{i}.pkl", "a pickle") for i in range(20)]
    assert set_aside_lines([*files, ("b", "notes")]) == [
        "set aside: 0.pkl and 19 more files: a pickle",
        "set aside: b: notes",
    ]
