"""Linter of findings-type files, with one study per line and the labels present or the probability of every label.

Conventions
-----------
Canonical JSONL: ``{"study_id": "...", "labels": ["Cardiomegaly", "COPD"]}`` or ``{"study_id": "...", "probabilities":
{"Cardiomegaly": 0.91, ...}}`` with all labels of the benchmark. CSV and TSV: a column ``study_id`` and one column per
label with its probability (0 and 1 are allowed). All lines of a file give labels, or all give probabilities;
``{"study_id": "...", "abstain": true}`` gives neither (:mod:`reveal_bench.predictions.abstain`). The linter knows only
the public manifest, reports all problems, and repairs nothing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from reveal_bench.findings import canonical_finding, conflict
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest
from reveal_bench.predictions.abstain import Abstentions
from reveal_bench.predictions.files import open_source
from reveal_bench.predictions.hints import name_hint, study_hint
from reveal_bench.predictions.jsonl import RawPrediction, check_entries, read_jsonl
from reveal_bench.predictions.limits import Limits, LintOptions
from reveal_bench.predictions.report import LintReport, ProblemLog
from reveal_bench.predictions.tables import open_rows, parse_probabilities, row_values
from reveal_bench.words import count_text

_ROUNDING = 1e-5  # a probability this far outside [0, 1] was rounded
_LARGEST = 1e300  # scores are added up, which must not overflow
_FIELDS = ("study_id", "labels", "probabilities")
_MOST_COLUMNS = 200
# Maximum number of unknown names for which similar spellings are searched, because each search takes milliseconds
_MOST_SEARCHED = 100


def lint_findings(path: Path, manifest: StudyManifest, options: LintOptions = LintOptions()) -> LintReport:
    """Check a file of findings predictions against the public manifest of a split.

    Parameters
    ----------
    path : JSONL, CSV or TSV, plain or compressed
    manifest : public manifest with the studies and labels asked
    options : see :class:`~reveal_bench.predictions.limits.LintOptions`; allowed missing studies are misses

    Returns
    -------
    LintReport; its `predictions` are FindingsPrediction, none if there is an error; its `missing_pairs` are (study_id,
    "") for each study without a prediction

    Raises
    ------
    OSError
        If the file cannot be read. The content of the file never raises an error.
    """
    limits = options.limits
    log, data = open_source(path, limits, options.name)
    if data is None:
        return LintReport.of_unread(log, options.allow_missing)
    log.left_out = frozenset(("unknown-study",) if options.leave_out_unknown else ())
    file_format, entries = _entries(data, limits, log)
    checker = StudyChecker(manifest, log, options)
    asked = [(study, "") for study in manifest.studies]
    declined = Abstentions(("study_id",), asked, "unknown-study", log, others=manifest.other_studies)
    predictions = check_entries(declined.answers(entries), checker.check, log)
    declined.check([(study, "") for study in checker.first_line])
    valid = [prediction for prediction in predictions if prediction is not None]
    answered = {*checker.first_line, *(study for study, _ in declined.lines)}
    missing = [] if log.stopped else _note_missing(answered, manifest, options, log)
    if {p.labels is None for p in valid} == {True, False}:
        log.error("mixed-kinds", "all lines must give labels, or all probabilities", line=valid[-1].line)
    for (spelling, label), n in checker.spellings.items():
        log.warning(
            "finding-spelling",
            f"read as {label} in {n} {'place' if n == 1 else 'places'}",
            field="labels",
            value=spelling,
        )
    _note_incomplete(checker, log, len(predictions), whole_split=options.whole_split)
    _note_scale(checker, log, any_scale=options.any_scale)
    log.note_left_out("studies")
    log.note_not_asked(checker.not_asked)
    _note_constant(valid, manifest, log)
    kept = () if log.has_errors else tuple(valid)
    problems, pairs = tuple(log.problems), tuple((study, "") for study in missing)
    shares = {} if checker.n_outside else _statistics(valid, manifest)
    rest = shares, options.allow_missing, *declined.counted
    return LintReport(log.file, file_format, len(predictions), problems, kept, pairs, *rest)


def _entries(data: bytes, limits: Limits, log: ProblemLog) -> tuple[str, Iterator[RawPrediction]]:
    if data.lstrip()[:1] == b"{":
        return "jsonl", read_jsonl(data, limits, log)
    if data.startswith(b"PAR1") or data.lstrip()[:1] == b"[":
        hint = "`reveal-bench convert FOLDER --from table --file FILE --out NEW.jsonl` writes JSONL"
        log.refuse("format", "the file must be JSONL, CSV or TSV", value=data[:8].decode("latin-1"), hint=hint)
        return "unknown", iter(())
    return "tsv" if b"\t" in data.split(b"\n", 1)[0] else "csv", _table(data, limits, log)


def _table(data: bytes, limits: Limits, log: ProblemLog) -> Iterator[RawPrediction]:
    with open_rows(data, limits, log, most_columns=_MOST_COLUMNS) as table:
        if "study_id" not in table:
            if not table.is_broken:
                rule = "the column `study_id` and a column per label are needed"
                log.refuse("missing-column", rule, line=1, value=list(table.columns))
            return
        names = [name.casefold() if name.casefold() == "study_id" else name for name in table.columns]
        key = names.index("study_id")
        labels = names[:key] + names[key + 1 :]
        for row in table:
            cells = row.texts
            study, numbers = cells.pop(key), parse_probabilities(cells)
            values = row_values(row, names, labels, log) if numbers is None else dict(zip(labels, numbers, strict=True))
            if values is not None:
                values.pop("study_id", "")
                yield RawPrediction(row.number, {"study_id": study, "probabilities": values})


class StudyChecker:
    """Checker of entries, which stores the line of each study."""

    def __init__(self, manifest: StudyManifest, log: ProblemLog, options: LintOptions) -> None:
        self.first_line: dict[str, int] = {}
        self.spellings: Counter[tuple[str, str]] = Counter()
        self.not_asked: Counter[str] = Counter()
        self.outside: list[tuple[int, str, float]] = []
        self.n_outside = 0
        self.incomplete: list[tuple[int, list[str], list[str]]] = []
        self._manifest, self._log, self._options, self._limits = manifest, log, options, options.limits
        self._studies, self._other_studies = set(manifest.studies), set(manifest.other_studies)
        self._canonical: dict[str, str | None] = {label: label for label in (*manifest.labels, *manifest.other_labels)}
        self._asked = {*manifest.labels}
        self._n_labels = len(self._canonical)
        self._n_searched = 0

    def check(self, entry: RawPrediction) -> FindingsPrediction | None:
        """Return the checked prediction, or None after logging its problems."""
        before, n_outside = len(self._log.problems), self.n_outside
        study_id = self._study(entry)
        for name in sorted(set(entry.fields) - set(_FIELDS))[:10]:
            hint = self._hint(name_hint, name, _FIELDS)
            self._error(entry, "unknown-field", name, "is not a field of a findings prediction", name, hint)
        answer_fields = [name for name in ("labels", "probabilities") if name in entry.fields]
        if len(answer_fields) != 1:
            self._error(
                entry, "missing-field", "labels", "one of `labels` and `probabilities` must be given", answer_fields
            )
            return None
        labels = probabilities = None
        if answer_fields == ["labels"]:
            labels = self._labels(entry)
        else:
            probabilities = self._probabilities(entry)
        is_refused = len(self._log.problems) > before or (self.n_outside > n_outside and not self._options.any_scale)
        if study_id is None or is_refused or (labels is None and probabilities is None):
            return None
        return FindingsPrediction(study_id, labels, probabilities, entry.line)

    def _error(self, entry: RawPrediction, rule: str, field: str, message: str, value: object, hint: str = "") -> None:
        self._log.error(rule, message, line=entry.line, field=field, value=value, hint=hint)

    def _hint(self, search: Callable[[str, Sequence[str]], str], name: str, known: Sequence[str]) -> str:
        self._n_searched += 1
        return search(name, known) if self._n_searched <= _MOST_SEARCHED else ""

    def _study(self, entry: RawPrediction) -> str | None:
        study_id = entry.fields.get("study_id")
        if not isinstance(study_id, str):
            self._error(entry, "missing-field", "study_id", "must be a text", study_id)
            return None
        if study_id in self._other_studies:
            self._log.n_not_asked += 1
            return None
        if study_id not in self._studies:
            hint = self._hint(study_hint, study_id, self._manifest.studies)
            self._error(
                entry, "unknown-study", "study_id", f"is not a study of split {self._manifest.split}", study_id, hint
            )
            return None
        if study_id in self.first_line:
            self._error(
                entry, "duplicate-study", "study_id", f"already predicted in line {self.first_line[study_id]}", study_id
            )
            return None
        self.first_line[study_id] = entry.line
        return study_id

    def _label(self, entry: RawPrediction, field: str, name: Any) -> str | None:
        if not isinstance(name, str) or len(name) > self._limits.finding_characters:
            self._error(entry, "wrong-type", field, "a label must be a short text", name)
            return None
        if name not in self._canonical:
            asked, others = self._manifest.labels, self._manifest.other_labels  # each with its own synonyms
            self._canonical[name] = canonical_finding(name, asked) or canonical_finding(name, others)
        label = self._canonical[name]
        if label in self._manifest.other_labels:
            self.not_asked[label] += 1
            return None
        if label is None:
            hint = self._hint(name_hint, name, self._manifest.labels)
            self._error(entry, "unknown-finding", field, f"is not a label of {self._manifest.benchmark}", name, hint)
        elif label != name:
            self.spellings[name, label] += 1
        return label

    def _labels(self, entry: RawPrediction) -> tuple[str, ...] | None:
        names = entry.fields["labels"]
        if not isinstance(names, list) or len(names) > self._n_labels:
            self._error(entry, "wrong-type", "labels", "must be a list of labels, each once", names)
            return None
        labels = [self._label(entry, "labels", name) for name in names]
        known = [label for label in labels if label is not None]
        for label in sorted({label for label in known if known.count(label) > 1}):
            self._error(entry, "duplicate-label", "labels", "a label may appear only once", label)
        if lone := conflict(known, self._manifest.labels):
            self._error(entry, "label-not-alone", "labels", f"{lone} excludes every other label", names)
        return tuple(known)

    def _probabilities(self, entry: RawPrediction) -> dict[str, float] | None:
        by_label = entry.fields["probabilities"]
        if not isinstance(by_label, dict):
            self._error(entry, "wrong-type", "probabilities", "must be an object of label and number", by_label)
            return None
        if by_label.keys() == self._asked and _are_probabilities(by_label.values()):
            return by_label  # nothing to report
        values: dict[str, float] = {}
        for name, value in by_label.items():
            label = self._label(entry, "probabilities", name)
            if label is None:
                continue
            field = f"probabilities.{label}"
            if label in values:
                self._error(entry, "duplicate-label", field, "a label may appear only once", name)
            elif isinstance(value, bool) or not isinstance(value, int | float):
                self._error(entry, "wrong-type", field, "must be a number", value)
            elif isinstance(value, float) and not math.isfinite(value):
                self._error(entry, "not-finite", field, "must be finite", value)
            else:
                values[label] = self._score(entry, field, value)
            values.setdefault(label, 0.0)
        absent = [label for label in self._manifest.labels if label not in values]
        if absent:
            if len(self.incomplete) <= self._limits.problems:
                self.incomplete.append((entry.line, absent, sorted(values)))
            return None
        return values

    def _score(self, entry: RawPrediction, field: str, value: float) -> float:
        if not 0 <= value <= 1 and abs(value) <= _LARGEST:
            self.n_outside += 1
            if len(self.outside) < self._limits.problems:
                self.outside.append((entry.line, field, value))
        elif not 0 <= value <= 1:  # also for integers too large for a float
            self._error(entry, "score-range", field, "must be in [0, 1]", value, _score_hint(value))
            return 0.0
        return float(value)


def _are_probabilities(values: Collection[object]) -> bool:
    return all(type(one) is float and 0 <= one <= 1 for one in values)


def _note_constant(predictions: Sequence[FindingsPrediction], manifest: StudyManifest, log: ProblemLog) -> None:
    """Warn of labels with the same probability in every study, which rank no study and may count as called in all."""
    values = [p.probabilities for p in predictions if p.probabilities is not None]
    constant = [k for k in manifest.labels if len(values) > 1 and all(one.get(k) == values[0].get(k) for one in values)]
    if constant:
        message = f"{count_text(len(constant), 'finding')} with the same probability in every study"
        hint = "leave out findings that you do not answer, and ask only the others (`--findings`)"
        log.warning("constant-score", message, field="probabilities", value=constant, hint=hint)


def _note_incomplete(checker: StudyChecker, log: ProblemLog, n_entries: int, *, whole_split: bool) -> None:
    """Report entries without a probability for each label, with a remedy for all of them or for single ones."""
    are_all_alike = len(checker.incomplete) == n_entries and len({str(one) for _, one, _ in checker.incomplete}) == 1
    for line, absent, present in checker.incomplete:
        hint = (
            "an empty cell or NaN? leave out the study: `--allow-missing` (`allow_missing=True`) counts it as negative"
        )
        if are_all_alike:
            names = ", ".join(present)
            hint = f'`--findings "{names}"` (`bench.select("{names}")`) scores only the labels present'
        hint = "" if whole_split or not present else hint
        message = f"must hold every label; {len(absent)} missing"
        log.error("missing-labels", message, line=line, field="probabilities", value=absent, hint=hint)


def _note_scale(checker: StudyChecker, log: ProblemLog, *, any_scale: bool) -> None:
    """Report scores on another scale once; codes (-1) and rounding errors next to 0 and 1 are errors in each line."""
    if not checker.outside:
        return
    if all(value == -1 or -_ROUNDING <= value <= 1 + _ROUNDING for _, _, value in checker.outside):
        for line, field, value in checker.outside:
            log.error("score-range", "must be in [0, 1]", line=line, field=field, value=value, hint=_score_hint(value))
        return
    line, field, value = checker.outside[0]
    scores = f"{count_text(checker.n_outside, 'score')} outside [0, 1]"
    are_percent = all(1 < number <= 100 for _, _, number in checker.outside)
    likely = _PERCENTAGE if are_percent else _LOGIT
    if any_scale:
        rule, write = "score-scale", log.warning
        message = f"{scores}: only the order counts, in AUROC and average precision"
        hint = f"{likely}; or give thresholds, which make decisions. A leaderboard refuses such scores"
    else:
        rule, write = "score-range", log.error
        message = f"must be in [0, 1], because a leaderboard counts decisions; {scores}"
        hint = f"{likely}, which keeps AUROC; or send the labels that are present"
    write(rule, message, line=line, field=field, value=value, hint=hint)


def _note_missing(
    answered: Collection[str], manifest: StudyManifest, options: LintOptions, log: ProblemLog
) -> list[str]:
    missing = [study for study in manifest.studies if study not in answered]
    if missing:
        refusal = options.part_refusal(len(missing), len(manifest.studies))
        message = f"{len(missing)} of {len(manifest.studies)} studies have no prediction{refusal}: "
        message += "; ".join(missing[:5])
        if options.allow_missing:
            log.warning(
                "missing-studies",
                message,
                hint="they count as negative for every label, and as wrong in specificity and NPV",
            )
        else:
            log.error("missing-studies", message, hint=options.missing_hint("missing studies"))
    return missing


def _statistics(predictions: list[FindingsPrediction], manifest: StudyManifest) -> dict[str, Any]:
    """Return the proportions of positive studies per label and of the most common answer; empty if no line could be
    read.

    A probability of at least 0.5 counts as positive.
    """
    answers = [
        p.labels if p.labels is not None else tuple(k for k, v in (p.probabilities or {}).items() if v >= 0.5)
        for p in predictions
    ]
    if not answers:
        return {}
    n, n_positive = len(answers), Counter(chain.from_iterable(answers))
    positive = {label: n_positive[label] / n for label in manifest.labels}
    commonest = max(Counter(frozenset(answer) for answer in answers).values()) / n
    return {"positive_share": positive, "same_answer_share": commonest}


def findings_to_jsonl(predictions: Iterable[FindingsPrediction]) -> str:
    r"""Return the canonical text of findings-type `predictions`: a line per study, with labels or all probabilities.

    Examples
    --------
    >>> findings_to_jsonl([FindingsPrediction("s", ("COPD",)), FindingsPrediction("t", None, {"COPD": 0.25})])
    '{"study_id": "s", "labels": ["COPD"]}\n{"study_id": "t", "probabilities": {"COPD": 0.25}}\n'
    """
    lines = []
    for prediction in predictions:
        answer = (
            {"labels": list(prediction.labels)}
            if prediction.labels is not None
            else {"probabilities": dict(prediction.probabilities or {})}
        )
        lines.append(json.dumps({"study_id": prediction.study_id, **answer}) + "\n")
    return "".join(lines)


def _score_hint(value: float) -> str:
    """Return the likely meaning of a number outside [0, 1]."""
    if value == -1:
        return "CheXpert's -1? an uncertain label needs a probability, too"
    if -_ROUNDING <= value <= 1 + _ROUNDING:
        return "a rounding error? clip the probabilities"
    return _PERCENTAGE if 1 < value <= 100 else _LOGIT


_PERCENTAGE, _LOGIT = (
    "a percentage? divide by 100",
    "a logit? apply the sigmoid first (torch.sigmoid, scipy.special.expit)",
)
