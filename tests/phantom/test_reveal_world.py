"""The synthetic REVEAL world: deterministic, of the shares it claims, and drawn where it says."""

import csv
import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from PIL import Image, ImageDraw

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom import write_reveal
from reveal_bench.phantom.radiograph import render
from reveal_bench.phantom.reveal_findings import draw_reveal_film, sides
from reveal_bench.phantom.reveal_studies import PORTRAIT, RevealImage, made_uid, studies
from tests.cli.test_score import call
from tests.conftest import files_of


@pytest.mark.parametrize("style", ["reveal-cxr", "midrc"])
def test_same_seed_same_bytes(tmp_path, style):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        call("phantom", tmp_path / name, "--style", style, "--images", 3, "--seed", seed, "--long-side", 64)
    a, b, c = (files_of(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c
    assert b"SYNTHETIC" in a["SYNTHETIC.txt"]


def test_a_study_does_not_depend_on_how_many_are_made(tmp_path):
    for name, n in (("few", 6), ("many", 9)):
        write_reveal(tmp_path / name, n_studies=n, seed=1, long_side=64)
    few, many = files_of(tmp_path / "few"), files_of(tmp_path / "many")
    images = [name for name in few if name.startswith(("images/", "reports/"))]
    assert len(images) >= 12
    assert all(few[name] == many[name] for name in images)
    for table in ("labels.csv", "votes.csv", "reports.csv", "truth.jsonl"):
        assert many[table].startswith(few[table])


def test_progress_counts_to_the_end(tmp_path):
    seen = []
    counts = write_reveal(
        tmp_path, n_studies=4, long_side=64, traps=False, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert counts["studies"] == 4
    assert counts["extra files"] == 0


def test_tables_agree_with_the_truth(tmp_path):
    write_reveal(tmp_path, n_studies=12, seed=4, long_side=64, stage="pool")
    truth = [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text().splitlines()]
    rows = {name: list(csv.DictReader((tmp_path / f"{name}.csv").open(newline=""))) for name in ("votes", "reports")}
    assert len(rows["votes"]) == 36
    for study, report in zip(truth, rows["reports"], strict=True):
        assert report["report"] == (tmp_path / report["file"]).read_text()
        assert report["labels"] == ("; ".join(study["labels"]) or "None")
        votes = [vote for vote in rows["votes"] if vote["study_uid"] == study["study_uid"]]
        assert len({vote["reader"] for vote in votes}) == 3
        assert sum(vote["answer"] == "Agree All" for vote in votes) == study["n_agree_all"]
        assert {vote["suggested"] for vote in votes} == {"; ".join(study["suggested"]) or "None"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_studies": 0}, "`n_studies` must be at least 1, got 0"),
        ({"long_side": 9}, r"`long_side` must be in \[64, 8192\], got 9"),
        ({"layout": "zip"}, "`layout` must be 'dicom' or 'midrc', got 'zip'"),
        ({"stage": "holdout"}, "`stage` must be 'benchmark' or 'pool', got 'holdout'"),
    ],
)
def test_bad_arguments(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        write_reveal(tmp_path / "new", **{"n_studies": 3, "long_side": 64, **change})


def test_a_full_folder_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ValueError, match="`out` must be a new or empty folder"):
        write_reveal(tmp_path, n_studies=1)


@pytest.fixture(scope="module")
def made():
    """4,000 studies of a benchmark."""
    return list(islice(studies(seed=1), 4000))


def test_a_benchmark_is_enriched_and_long_tailed(made):
    """1 to 4 labels; the four common ones first; hernia and lymphadenopathy below 10 of 100 (section 4.1)."""
    assert {len(study.labels) for study in made} == {1, 2, 3, 4}
    share = {label: sum(label in study.labels for study in made) / 4000 for label in REVEAL_LABELS}
    common = ["Airspace opacity", "Cardiomegaly", "Pleural effusion", "Interstitial opacity"]
    assert set(sorted(share, key=share.get)[-4:]) == set(common)
    assert max(share, key=share.get) == "Airspace opacity"
    assert 0 < share["Hiatal hernia"] < 0.1
    assert 0 < share["Lymphadenopathy"] < 0.1
    assert len({study.patient for study in made}) == 4000


def test_images_and_patients_are_as_in_the_paper(made):
    """Tables 1 and S2: 109 images of 100 studies, 10 of them lateral; 89% inpatients, 23% aged 80+, half women.

    Four standard deviations of 4,000 draws: 0.018 at a share of 9%, 0.032 at one half.
    """
    images = [image for study in made for image in study.images]
    assert abs(len(images) / 4000 - 1.09) < 0.018
    assert abs(sum(image.view == "LATERAL" for image in images) / 4000 - 0.09) < 0.018
    assert abs(sum(image.view == "PA" for image in images) / 4000 - 0.11) < 0.02
    assert abs(sum(study.patient_class == "inpatient" for study in made) / 4000 - 0.89) < 0.02
    assert abs(sum((study.age or 0) >= 80 for study in made) / 4000 - 0.23) < 0.027
    assert abs(sum(study.sex == "F" for study in made) / 4000 - 0.5) < 0.032
    assert {study.race for study in made} > {"White", "Asian", "unknown"}


def test_the_pool_has_normals_many_labels_and_returning_patients():
    made = list(islice(studies("pool", seed=0), 3000))
    assert 0.15 < sum(not study.labels for study in made) / 3000 < 0.35
    assert max(len(study.labels) for study in made) >= 5
    assert len({study.patient for study in made}) == 2500
    by_patient = {study.patient: study for study in made}
    again = [(study, by_patient[study.patient]) for study in made]
    assert all((a.sex, a.race, a.age) == (b.sex, b.race, b.age) for a, b in again)
    assert len({study.study_uid for study in made}) == 3000


def test_uids_are_valid_and_stay_the_same():
    """A UID under 2.25 contains a UUID as a number (PS3.5, B.2); this one was computed once with hashlib and uuid."""
    uid = made_uid("a", 1)
    assert uid == made_uid("a", 1) != made_uid("a", 2)
    assert uid.startswith("2.25.")
    assert len(uid) <= 64
    assert int(uid.split(".")[2]) >> 76 & 0xF == 4  # version 4, as PS3.5 asks for no other


DRAWN = [label for label in REVEAL_LABELS if label not in ("Cardiomegaly", "COPD")]


@pytest.mark.parametrize("view", ["PA", "LATERAL"])
@pytest.mark.parametrize("label", DRAWN)
def test_a_finding_shows_where_it_is_outlined(label, view):
    """Grey levels of films with and without it differ at least five times as much inside its outline as far away."""
    study = replace(next(iter(studies(seed=5))), patient_class="outpatient")
    image = RevealImage(1, view, PORTRAIT)
    films = []
    for labels in (
        (label,),
        ("Lymphadenopathy",) if label == "Aneurysm" else ("Aneurysm",) if label == "Lymphadenopathy" else (),
    ):
        anatomy, drawn = draw_reveal_film(replace(study, labels=labels), image)
        films.append((render(anatomy, drawn.shapes, study.rng(20, 1), (256, 213)).astype(float), drawn))
    (with_it, drawn), (without, _) = films
    inside = Image.new("1", (213, 256))
    for contour in drawn.contours[label]:
        ImageDraw.Draw(inside).polygon([tuple(p) for p in (contour * 256).tolist()], fill=1)
    mask = np.asarray(inside)
    assert 20 < mask.sum() < mask.size / 2
    difference = np.abs(with_it - without)
    elsewhere = difference[:40, :40].mean()  # a corner beyond the body
    assert difference[mask].mean() > 5 * max(elsewhere, 0.5)


def test_a_large_heart_and_long_lungs():
    study = replace(next(iter(studies(seed=6))), patient_class="outpatient")
    image = RevealImage(1, "PA", PORTRAIT)
    normal, large, copd = (
        draw_reveal_film(replace(study, labels=labels), image)[0] for labels in ((), ("Cardiomegaly",), ("COPD",))
    )

    def wide(contour):
        return np.ptp(contour[:, 0])

    lungs = np.concatenate(list(normal.lungs.values()))
    assert wide(large.contours["heart"]) / wide(lungs) > 0.5 > wide(normal.contours["heart"]) / wide(lungs)
    dome = {
        name: np.sort(body.local_lungs["lung_right"][:, 1])[-12] for name, body in (("normal", normal), ("copd", copd))
    }
    assert dome["copd"] > dome["normal"]
    assert wide(copd.contours["heart"]) < wide(normal.contours["heart"])


def test_sides_are_the_patient_s():
    """The patient's right is on the left of a frontal film."""
    study = replace(next(iter(studies(seed=7))), labels=("Pleural effusion",))
    anatomy, _ = draw_reveal_film(study, RevealImage(1, "PA", PORTRAIT))
    square = np.array([(-0.1, -0.1), (0.1, -0.1), (0.1, 0.1), (-0.1, 0.1)])
    left, right = (np.add(square, (anatomy.centre[0] + dx, 0.5)) for dx in (0.2, -0.2))
    assert sides(anatomy, [left]) == "left"
    assert sides(anatomy, [right]) == "right"
    assert sides(anatomy, [right, left]) == "bilateral"
