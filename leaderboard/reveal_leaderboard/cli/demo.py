"""The whole product on synthetic data, on this machine: what ``make demo`` runs.

A synthetic CheXlocalize download becomes a public dataset folder and a private holdout; three models of graded quality
and two baselines predict both halves; their files are scored at home on the released half, and uploaded to a board
whose worker alone knows the holdout. A second dataset, of studies, is curated from DICOM files and reports
(:mod:`reveal_leaderboard.cli.demo_studies`). Everything lies in one folder and is made again only when it is missing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.evaluation.baselines import chance_baseline, fit_location_prior, location_prior_baseline
from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds.localization.records import LocalizationPrediction, read_localization, read_manifest
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.phantom import model_predictions, write_chexlocalize
from reveal_bench.predictions import predictions_to_jsonl
from reveal_bench.sources import BUILDERS
from reveal_leaderboard.cli.demo_board import Upload, running
from reveal_leaderboard.cli.demo_studies import SETTINGS, STUDIES, prepare_studies, score_studies_at_home, study_uploads

__all__ = ["BENCHMARK", "STUDIES", "Demo", "Entrant"]

BENCHMARK = "chexlocalize"
MARKER = "reveal-demo.json"
Echo = Callable[[str], None]


@dataclass(frozen=True)
class Entrant:
    """A model and its team: `quality` from 0 (blind) to 1 (as good as a reader), None for a baseline."""

    name: str
    organization: str
    kind: str
    quality: float | None
    gives: Literal["cell", "mask", "all"] = "all"

    @property
    def stem(self) -> str:
        """Its file name without ending."""
        return self.name.lower().replace(" ", "-")


ENTRANTS = (
    Entrant("Phantom Net L", "Example University", "cnn", 0.9),
    Entrant("Phantom Net S", "Example Hospital", "saliency", 0.55),
    Entrant("Phantom Chat", "Example Company", "multimodal_llm", 0.3, "cell"),
    Entrant("Location prior", "Prior Laboratory", "other", None),
    Entrant("Chance", "Chance Laboratory", "other", None),
)


class Demo:
    """The demonstration in `root`.

    Parameters
    ----------
    root : folder of everything; made if missing
    n_images : images of the synthetic test split; half of their patients are held out
    echo : called with each line for the user
    """

    def __init__(self, root: Path, *, n_images: int, seed: int, echo: Echo) -> None:
        self.root, self.n_images, self.seed, self.echo = root.resolve(), n_images, seed, echo
        self.download, self.public = self.root / "download", self.root / "public"
        self.private, self.server = self.root / "private", self.root / "server"
        self.holdout, self.studies = self.private / "holdout", self.root / "studies"
        self.n_studies, self.settings = n_images * 3 // 4, self.root / "settings.toml"
        self.predictions = self.root / "predictions"

    def prepare(self) -> None:
        """Make the world, the dataset and the prediction files, unless they are there already.

        Raises
        ------
        ValueError
            If `root` holds something else, or a demo of another size or seed.
        """
        wanted = {"n_images": self.n_images, "seed": self.seed}
        marker = self.root / MARKER
        if marker.exists():
            made = json.loads(marker.read_text(encoding="utf-8"))
            if made == {}:
                self.echo("the demo that is there was interrupted: making it again")
                self.remove()
                return self.prepare()
            if made != wanted:
                raise ValueError(f"{self.root} holds a demo made with {made}, not {wanted}: use --fresh to replace it")
            self.echo(f"using the world in {self.root} (--fresh makes a new one)")
            return None
        if self.root.exists() and any(self.root.iterdir()):
            raise ValueError(f"{self.root} is not empty and holds no finished demo: use --fresh to replace it")
        self.root.mkdir(parents=True, exist_ok=True)
        marker.write_text("{}", encoding="utf-8")
        self.echo(f"1  drawing {self.n_images} synthetic radiographs with masks and readers")
        write_chexlocalize(self.download, n_images=self.n_images, n_val=40, seed=self.seed, long_side=512)
        self.echo("2  building the dataset: released half, and the private half apart")
        self._build()
        self.echo("3  predicting both halves: three models, two baselines")
        for split in ("released", "holdout"):
            self._predict(split)
        self.echo(f"   and a second benchmark, curated from {self.n_studies} studies of DICOM files with reports")
        private = self.private / STUDIES
        prepare_studies(self.studies, n_studies=self.n_studies, seed=self.seed, private=private, echo=self.echo)
        self.settings.write_text(SETTINGS, encoding="utf-8")
        marker.write_text(json.dumps(wanted), encoding="utf-8")
        return None

    def remove(self) -> None:
        """Delete the demo's folder.

        Raises
        ------
        ValueError
            If it does not look like one.
        """
        known = {
            MARKER,
            "download",
            "public",
            "private",
            "server",
            "predictions",
            "studies",
            "log.txt",
            "settings.toml",
        }
        unknown = sorted({path.name for path in self.root.iterdir()} - known) if self.root.exists() else []
        if unknown:
            raise ValueError(f"{self.root} does not look like a demo (it holds {unknown[0]}): not deleted")
        shutil.rmtree(self.root, ignore_errors=True)

    def _build(self) -> None:
        reading = BUILDERS[BENCHMARK].read(self.download, pixels="embed", keep_going=False)
        build_folder(
            reading.splits, self.public, BENCHMARKS[BENCHMARK], holdout=self.holdout, seed=self.seed, synthetic=True
        )

    def _predict(self, split: str) -> None:
        manifest = read_manifest(self.public, split)
        truth = read_localization(self.holdout if split == "holdout" else self.public, split)
        released = read_localization(self.public, "released")
        for k, entrant in enumerate(ENTRANTS):
            made: Sequence[LocalizationPrediction]
            if entrant.quality is not None:
                made = model_predictions(
                    truth, manifest, quality=entrant.quality, kind=entrant.gives, seed=self.seed + k
                )
            elif entrant.name == "Chance":
                made = chance_baseline(manifest, seed=self.seed)
            else:
                made = location_prior_baseline(manifest, fit_location_prior(released, manifest.findings))
            folder = self.predictions / entrant.stem
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{split}.jsonl").write_text(predictions_to_jsonl(made), encoding="utf-8")
            (folder / "submission.json").write_text(json.dumps(_metadata(entrant), indent=2), encoding="utf-8")

    def score_at_home(self) -> None:
        """Score every file on the released half, as its author would."""
        self.echo("4  scoring at home on the released half: macro hit rate with its 95 % interval")
        for entrant in ENTRANTS:
            scored = score_file(self.predictions / entrant.stem / "released.jsonl", self.public, "released")
            (macro,) = [e for e in scored.estimates if (e.metric, e.finding) == ("point_hit", MACRO)]
            interval = f"{100 * macro.low:.1f} to {100 * macro.high:.1f}"
            self.echo(f"     {entrant.name:<16} {100 * macro.value:5.1f} %  ({interval})")
        self.echo("   and the studies: macro AUROC")
        score_studies_at_home(self.studies, self.echo)

    def uploads(self) -> list[Upload]:
        """Every file for a holdout, in the order in which they are sent."""
        of_images = [
            Upload(BENCHMARK, folder / "holdout.jsonl", _metadata_of(folder))
            for folder in (self.predictions / entrant.stem for entrant in ENTRANTS)
        ]
        return of_images + study_uploads(self.studies)

    def say_what_next(self, url: str) -> None:
        """Tell where to look, and what to try."""
        file = self.predictions / "phantom-chat" / "holdout.jsonl"
        self.echo(f"""
The board is at  {url}
Try next:
  - break a line of {file}
    and drop the file on {url}/submit: the linter names line, field and value
  - reveal-bench score {self.predictions / "phantom-chat" / "released.jsonl"} {self.public}
  - open {self.studies / "curation" / "report" / "index.html"}: how the second benchmark was made
  - reveal-bench report {self.studies / "public"} --out report.html
  - python -c "from datasets import load_dataset; print(load_dataset('{self.public}', split='released'))"
Ctrl-C ends the server and the worker; running this again takes a few seconds.""")

    @contextmanager
    def running(self, port: int) -> Iterator[str]:
        """Server and worker as processes of their own; yields the address, ends both."""
        self.server.mkdir(parents=True, exist_ok=True)
        holdouts = {BENCHMARK: self.holdout, STUDIES: self.private / STUDIES}
        common = ["--data", self.server, "--settings", self.settings]
        serve = ["serve", *common]
        for folder in (self.public, self.studies / "public"):
            serve += ["--benchmark", folder]
        work = ["worker", *common]
        for name, folder in holdouts.items():
            work += ["--holdout", f"{name}={folder}"]
        self.echo("5  starting the server, which cannot open the holdouts, and the worker, which can")
        # The log is not in the server's folder: it may name the holdouts' paths.
        with running(serve, work, port=port, log=self.root / "log.txt") as url:
            yield url


def _metadata(entrant: Entrant) -> dict[str, object]:
    style = "zero-shot" if entrant.kind == "multimodal_llm" else None
    return {
        "model": {"name": entrant.name, "version": "1"},
        "organization": entrant.organization,
        "kind": entrant.kind,
        **({"prompt_style": style} if style else {}),
    }


def _metadata_of(folder: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((folder / "submission.json").read_text(encoding="utf-8"))
    return document
