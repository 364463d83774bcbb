"""Command ``reveal-leaderboard demo`` (``make demo``): datasets, predictions and boards from synthetic data.

A synthetic CheXlocalize download becomes a public dataset folder and a private holdout. Three models of graded quality
and two baselines predict both halves. Their files are scored locally on the released half, and uploaded to a board
whose holdout only the worker can read. A second dataset, of studies, is curated from DICOM files and reports by
simulated readers. All files are in one folder; a later run creates only missing files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.cli import client
from reveal_bench.curation.assign import assign
from reveal_bench.curation.consensus import consensus
from reveal_bench.curation.extract import ReportTable, extract
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.report_tables import ReportColumns
from reveal_bench.curation.sample import sample
from reveal_bench.curation.select import select
from reveal_bench.curation.split import split
from reveal_bench.curation.tables import Assignment, Sampled, read_table
from reveal_bench.curation.votes import import_votes
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.holdout import HOLDOUT
from reveal_bench.dataset.hub import prepare
from reveal_bench.evaluation.baselines import chance_baseline, fit_location_prior, location_prior_baseline
from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds.findings.lint import findings_to_jsonl
from reveal_bench.kinds.findings.records import read_studies
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import LocalizationPrediction, read_localization, read_manifest
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.phantom import model_predictions, study_predictions, write_chexlocalize, write_curation_world
from reveal_bench.phantom.curation import cast, expected_kappa, write_votes
from reveal_bench.reports.curation import report
from reveal_bench.sources import SOURCE_MODULES
from reveal_bench.viewer.gallery import CaseSource, prepare_gallery
from reveal_leaderboard.worker.supervisor import Supervisor, own_command

BENCHMARK = "chexlocalize"
MARKER = "reveal-demo.json"
GALLERY_CASES = 24
Echo = Callable[[str], None]


@dataclass(frozen=True)
class Entrant:
    """A model and its team; `quality` is from 0 (blind) to 1 (as good as a reader), or None for a baseline."""

    name: str
    organization: str
    kind: str
    quality: float | None
    gives: Literal["cell", "mask", "all"] = "all"

    @property
    def stem(self) -> str:
        """Return the model's file name without its ending."""
        return self.name.lower().replace(" ", "-")


ENTRANTS = (
    Entrant("Phantom Net L", "Example University", "cnn", 0.9),
    Entrant("Phantom Net S", "Example Hospital", "saliency", 0.55),
    Entrant("Phantom Chat", "Example Company", "multimodal_llm", 0.3, "cell"),
    Entrant("Location prior", "Prior Laboratory", "other", None),
    Entrant("Chance", "Chance Laboratory", "other", None),
)


class Demo:
    """A demonstration whose files are in `root`.

    Parameters
    ----------
    root : folder of the demonstration; created if missing
    n_images : images of the synthetic test split; half of their patients are held out
    echo : function that prints a line for the user
    """

    def __init__(self, root: Path, *, n_images: int, seed: int, echo: Echo) -> None:
        self.root, self.n_images, self.seed, self.echo = root.resolve(), n_images, seed, echo
        self.download, self.public = self.root / "download", self.root / "public"
        self.private, self.server = self.root / "private", self.root / "server"
        self.holdout, self.studies = self.private / "holdout", self.root / "studies"
        self.n_studies, self.settings = max(FEWEST_STUDIES, n_images * 3 // 4), self.root / "settings.toml"
        self.predictions, self.gallery = self.root / "predictions", self.root / "gallery"

    def prepare(self) -> None:
        """Create the synthetic data, the dataset and the prediction files, unless they exist.

        Raises
        ------
        ValueError
            If `root` contains other files, or a demo with a different size or seed.
        """
        wanted = {"n_images": self.n_images, "seed": self.seed}
        marker = self.root / MARKER
        if marker.exists():
            made = json.loads(marker.read_text(encoding="utf-8"))
            if made == {}:
                self.echo("the existing demo is incomplete: creating it again")
                self.remove()
                return self.prepare()
            if made != wanted:
                raise ValueError(
                    f"{self.root} contains a demo made with {made}, not {wanted}: use --fresh to replace it"
                )
            self.echo(f"using the demo in {self.root} (--fresh creates a new one)")
            return None
        if self.root.exists() and any(self.root.iterdir()):
            raise ValueError(f"{self.root} is not empty and contains no finished demo: use --fresh to replace it")
        self.root.mkdir(parents=True, exist_ok=True)
        marker.write_text("{}", encoding="utf-8")
        self.echo(f"1  drawing {self.n_images} synthetic radiographs with masks and readers")
        n_val = self.n_images // 10
        write_chexlocalize(self.download, n_images=self.n_images, n_val=n_val, seed=self.seed, long_side=512)
        self.echo("2  building the dataset: a released half, and a separate private half")
        self._build()
        self.echo("3  predicting both halves: three models, two baselines")
        for half in ("released", "holdout"):
            self._predict(half)
        files = {
            f"{entrant.name}, {entrant.organization}": self.predictions / entrant.stem / "released.jsonl"
            for entrant in ENTRANTS
        }
        prepare_gallery(CaseSource(self.public, "released", files, most=GALLERY_CASES), self.gallery)
        self.echo(f"   and a second benchmark, curated from {self.n_studies} studies of DICOM files with reports")
        private = self.private / STUDIES
        prepare_studies(self.studies, n_studies=self.n_studies, seed=self.seed, private=private, echo=self.echo)
        small = [STUDIES] if self.n_images >= ENOUGH_IMAGES else [STUDIES, BENCHMARK]
        self.settings.write_text(settings_of(*small), encoding="utf-8")
        marker.write_text(json.dumps(wanted), encoding="utf-8")
        return None

    def remove(self) -> None:
        """Delete the demo's folder, if it exists.

        Raises
        ------
        ValueError
            If the folder does not look like a demo.
        """
        known = {
            MARKER,
            "download",
            "public",
            "private",
            "server",
            "predictions",
            "gallery",
            "studies",
            "log.txt",
            "settings.toml",
        }
        unknown = sorted({path.name for path in self.root.iterdir()} - known) if self.root.exists() else []
        if unknown:
            raise ValueError(f"{self.root} does not look like a demo (it contains {unknown[0]}): not deleted")
        shutil.rmtree(self.root, ignore_errors=True)

    def _build(self) -> None:
        source_data = SOURCE_MODULES[BENCHMARK].read(self.download, pixels="embed", keep_going=False)
        build_folder(
            source_data.splits, self.public, BENCHMARKS[BENCHMARK], holdout=self.holdout, seed=self.seed, synthetic=True
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
            # A point outside its cells would be a second position, and the board would show no grid hit rate.
            made = [replace(one, cell=None) if one.points else one for one in made]
            folder = self.predictions / entrant.stem
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{split}.jsonl").write_text(predictions_to_jsonl(made), encoding="utf-8")
            (folder / "submission.json").write_text(json.dumps(_metadata(entrant), indent=2), encoding="utf-8")

    def score_at_home(self) -> None:
        """Score every file on the released half, as the file's author would."""
        self.echo("4  scoring locally on the released half: macro hit rate with its 95% interval")
        for entrant in ENTRANTS:
            scored = score_file(self.predictions / entrant.stem / "released.jsonl", self.public, "released")
            (macro,) = [e for e in scored.estimates if (e.metric, e.finding) == ("point_hit", MACRO)]
            self.echo(_home_line(entrant.name, macro))
        self.echo("   and the studies: macro AUROC")
        score_studies_at_home(self.studies, self.echo)

    def uploads(self) -> list[DemoUpload]:
        """Return the files to send for each holdout, in the order of sending."""
        of_images = [
            DemoUpload(BENCHMARK, folder / "holdout.jsonl", _metadata_of(folder))
            for folder in (self.predictions / entrant.stem for entrant in ENTRANTS)
        ]
        return of_images + study_uploads(self.studies)

    def say_what_next(self, url: str) -> None:
        """Print addresses and commands to try."""
        file = self.predictions / "phantom-chat" / "holdout.jsonl"
        self.echo(f"""
The board is at  {url}
Try next:
  - look at {url}/gallery: released images with every model's answers
  - break a line of {file}
    and drop the file on {url}/submit: the linter names line, field and value
  - reveal-bench score {self.predictions / "phantom-chat" / "released.jsonl"} {self.public}
  - open {self.studies / "curation" / "report" / "index.html"}: how the second benchmark was made
  - reveal-bench report {self.studies / "public"} --out report.html
  - python -c "from datasets import load_dataset; print(load_dataset('{self.public}', split='released'))"
Ctrl-C ends the server and the worker; running this again takes a few seconds.""")

    @contextmanager
    def running(self, port: int) -> Iterator[str]:
        """Run server and worker as separate processes; yield the address, and end both afterwards."""
        self.server.mkdir(parents=True, exist_ok=True)
        holdouts = {BENCHMARK: self.holdout, STUDIES: self.private / STUDIES}
        common = ["--data", self.server, "--settings", self.settings]
        serve = ["serve", *common, "--as-root"]  # allowed because the data are synthetic
        for folder in (self.public, self.studies / "public"):
            serve += ["--benchmark", folder]
        if self.gallery.is_dir():  # missing in demos of earlier versions
            serve += ["--gallery", self.gallery]
        work = ["worker", *common]
        for name, folder in holdouts.items():
            work += ["--holdout", f"{name}={folder}"]
        self.echo("5  starting the server, which cannot open the holdouts, and the worker, which can open them")
        # The log is outside the server's folder, because it may contain the paths of holdouts.
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


START_SECONDS = 120


PLACING_SECONDS = 20


@dataclass(frozen=True)
class DemoUpload:
    """A file to send to a board, with its metadata."""

    benchmark: str
    path: Path
    metadata: Mapping[str, object]


@contextmanager
def running(serve: Sequence[object], work: Sequence[object], *, port: int, log: Path) -> Iterator[str]:
    """Keep a server and a worker running, restarting them if they die; yield the address once it answers.

    Raises
    ------
    RuntimeError
        If the server does not answer within two minutes; the message contains the end of the log.
    """
    port = port if _is_free(port) else _free_port()
    url = f"http://127.0.0.1:{port}"
    with log.open("ab") as output:
        commands = {"server": own_command(*serve, "--port", port), "worker": own_command(*work)}
        supervisor = Supervisor(commands, output=output)
        thread = threading.Thread(target=supervisor.run, name="supervisor", daemon=True)
        thread.start()
        try:
            _wait_until_ready(url, supervisor, log)
            yield url
        finally:
            disarm_signals()
            supervisor.stopping.set()
            thread.join()


def upload(uploads: Sequence[DemoUpload], url: str, echo: Echo) -> None:
    """Send every file by the API, and wait for the scores."""
    echo("6  uploading the files for the holdouts, each for a different team")
    for one in uploads:
        sent = client.Server(url).submit(one.path, benchmark=one.benchmark, metadata=one.metadata)
        *_, final = client.Server(url).follow(sent["id"])
        model = sent["metadata"]["model"]["name"]
        echo(f"     {one.benchmark:<14} {model:<18} {final['status']}")


def show_board(url: str, benchmark: str, echo: Echo) -> None:
    """Print a board as the API returns it."""
    board = _placed_board(url, benchmark)
    metric = board["primary"]
    title = METRICS[metric].in_words
    echo(f"7  the board ({board['benchmark']} {board['version']}): rank, tier, macro {title} over the shown findings")
    for row in board["entries"]:
        figure = next((f for f in row["figures"] if (f["metric"], f["finding"]) == (metric, MACRO)), None)
        text = "not shown" if figure is None else (
            f"{100 * figure['value']:3.0f}%  ({100 * figure['low']:.0f} to {100 * figure['high']:.0f})"
        )  # fmt: skip
        echo(f"     {row['place']:>5}  {row['tier'] or '-'}  {row['model']:<18} {text}")


def _placed_board(url: str, benchmark: str) -> dict[str, Any]:
    """Return the board once a worker has ranked all entries, shortly after the last score."""
    deadline = time.monotonic() + PLACING_SECONDS
    while True:
        board: dict[str, Any] = client.Server(url).leaderboard(benchmark)
        if not any(entry["is_new"] for entry in board["entries"]) or time.monotonic() > deadline:
            return board
        time.sleep(0.5)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_until_ready(url: str, supervisor: Supervisor, log: Path) -> None:
    import httpx

    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and supervisor.n_restarts < 3:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.3)
        else:
            time.sleep(0.3)
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    raise RuntimeError(f"the leaderboard did not start; the end of {log}:\n{tail}")


SECONDS_UNTIL_AGAIN = 2.0


def arm_signals() -> None:
    """Make Ctrl-C and SIGTERM raise KeyboardInterrupt, even if the shell that started this process ignores these
    signals. Python drops exceptions in a ``__del__`` method or a library's callback, so the exception is raised again
    every two seconds until :func:`disarm_signals` is called.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, SECONDS_UNTIL_AGAIN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, stop)


def disarm_signals() -> None:
    """Stop raising the exception of :func:`arm_signals`, so that the program can clean up."""
    signal.setitimer(signal.ITIMER_REAL, 0)


STRATA = {1: 0.34, 2: 0.22, 3: 0.10, 4: 0.04}
"""Number of suggested labels -> proportion of the sample; missing studies come from the next lower number of labels."""


TARGET = 0.5
"""Largest proportion of the pool that is selected."""


DRAWS = 20


def curate(folder: CurationFolder, pool: Path, echo: Echo) -> Path:
    """Run all curation steps on the files of :func:`reveal_bench.phantom.write_curation_world`; return the id
    mapping.
    """
    counts = extract(folder, ReportTable(pool / "reports.csv", ReportColumns("study", "patient", "report"))).counts
    from_reports = f"{counts['studies']} reports of {counts['patients']} patients"
    echo(f"     extract    {from_reports}, {counts['quarantined']} quarantined")
    strata = {n: max(round(share * counts["studies"]), 1) for n, share in STRATA.items()}
    sampled = sample(folder, strata=strata, fill=True).counts
    echo(f"     sample     {sampled['sampled']} studies, one per patient; {sampled['set_aside']} others excluded")
    assigned = assign(folder, pool / "readers.csv").counts
    assignments = read_table(folder.path("assignments.parquet"), Assignment)
    readings = [(one.study_id, one.reader) for one in assignments]
    suggested = {one.study_id: one.labels for one in read_table(folder.path("sample.parquet"), Sampled)}
    truth = _truth(pool)
    write_votes(pool / "votes.csv", cast(readings, suggested, truth, folder.seed))
    import_votes(folder, pool / "votes.csv")
    echo(
        f"     read       each study by three of the {assigned['readers']} simulated readers: "
        f"{assigned['places']} readings"
    )
    consensus(folder)
    agreement = json.loads(folder.path("agreement.json").read_text(encoding="utf-8"))
    kappa = agreement["answers"]["two_categories"]
    expected = expected_kappa((suggested[study], truth[study]) for study in suggested)
    interval = f"{kappa['low']:.2f} to {kappa['high']:.2f}"
    echo(f"     consensus  kappa {kappa['value']:.2f} ({interval}); expected {expected:.2f}")
    selected = select(folder, target=max(round(TARGET * counts["studies"]), 2)).counts
    echo(f"     select     {selected['selected']} studies on which two readers agree, less common findings first")
    halves = split(folder, pool / "facts.csv", best_of=DRAWS).counts
    sizes = f"{halves['released']['studies']} released, {halves['holdout']['studies']} held out"
    echo(f"     split      {sizes}; the best balanced of {DRAWS} draws")
    report(folder)
    echo(f"     report     {folder.path('report/index.html')}")
    return folder.path("benchmark/mapping.yaml")


def _truth(pool: Path) -> dict[str, list[str]]:
    lines = (pool / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["study_uid"]: one["labels"] for one in map(json.loads, lines)}


STUDIES = "reveal-cxr"


MODELS = {
    "Phantom Reader L": ("Example University", 0.6),
    "Phantom Reader S": ("Example Hospital", 0.35),
    "Chance": ("Chance Laboratory", 0.0),
}
"""Model -> (team, quality)."""


FEWEST_STUDIES = 90
"""Fewest studies with which enough are held out for a board."""
ENOUGH_IMAGES = 150
"""From this number of studies, a board with half of them held out shows scores by the usual release rules."""


def settings_of(*benchmarks: str) -> str:
    """Return settings for a demo's server that allow small holdouts of these benchmarks."""
    head = "# Only for the demo, whose holdouts are small and synthetic: findings with ten cases are shown.\n"
    head += '[accounts]\nnew_teams = "open"\n[exposure]\nclose_bits = 1000.0\naccepted_leaks = ["few cases"]\n'
    head += '[about]\nhost = "your own machine, to try things out"\n'
    return head + "".join(
        f"[benchmarks.{name}.release]\nmin_cell = 10\nplace_cell = 10\nbands = [10, 30, 60, 120]\n"
        "band_resolution = [0.1, 0.1, 0.05, 0.01]\n"
        for name in benchmarks
    )


def prepare_studies(root: Path, *, n_studies: int, seed: int, private: Path, echo: Echo) -> None:
    """Write the pool of studies, curate it, build and check both folders, and write two prediction files per model."""
    pool, public = root / "pool", root / "public"
    write_curation_world(pool, n_studies=n_studies, seed=seed, long_side=512)
    mapping = curate(CurationFolder.create(root / "curation", name="Demo", seed=seed), pool, echo)
    # Synthetic data need no secret. Ids decide the order of the models' random draws, so they depend on the seed only.
    key = hashlib.sha256(f"the studies of the demo with seed {seed}".encode()).digest()
    source_data = SOURCE_MODULES[STUDIES].read(pool / "films", keep_going=False, mapping=mapping, id_key=key)
    build_folder(
        source_data.splits,
        public,
        BENCHMARKS[STUDIES],
        holdout=private,
        holdout_split=HOLDOUT,
        extras=source_data.extras,
        seed=seed,
        synthetic=True,
    )
    ready = prepare(public, f"demo/{STUDIES}", private=False, holdout=private)
    echo(f"     publish    {len(ready.files)} files checked, none from the holdout; not sent")
    labels = read_folder_info(public).findings
    for half, folder in (("released", public), ("holdout", private)):
        studies = read_studies(folder, half)
        for number, (model, (_, quality)) in enumerate(MODELS.items()):
            made = study_predictions(studies, labels, quality=quality, seed=seed + number)
            _file_of(root, model, half).write_text(findings_to_jsonl(made), encoding="utf-8")


def score_studies_at_home(root: Path, echo: Echo) -> None:
    """Score every model's file on the released half, as the file's author would."""
    for model in MODELS:
        scored = score_file(_file_of(root, model, "released"), root / "public", "released")
        (macro,) = [e for e in scored.estimates if (e.metric, e.finding) == ("auroc", MACRO)]
        echo(_home_line(model, macro))


def _home_line(name: str, macro: Estimate) -> str:
    ends = "too few for an interval" if isnan(macro.low) else f"{100 * macro.low:.1f} to {100 * macro.high:.1f}"
    return f"     {name:<16} {100 * macro.value:5.1f}%  ({ends})"


def study_uploads(root: Path) -> list[DemoUpload]:
    """Return every model's file for the holdout."""
    return [
        DemoUpload(
            STUDIES,
            _file_of(root, model, "holdout"),
            {"model": {"name": model, "version": "1"}, "organization": team, "kind": "other"},
        )
        for model, (team, _) in MODELS.items()
    ]


def _file_of(root: Path, model: str, split: str) -> Path:
    return root / f"{model.lower().replace(' ', '-')}-{split}.jsonl"
