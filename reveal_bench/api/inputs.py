"""Accept predictions of any Python type, and check them with the same linter as a prediction file.

Inputs other than files are written to a temporary file, so that the same rules apply. No value is filled in, rounded or
omitted. Ids that pandas has turned into numbers, see :mod:`reveal_bench.predictions.number_ids`, become text again.

==============================  ======================================================================================
input                           read as
==============================  ======================================================================================
path                            a prediction file of any accepted format, or a run folder that contains one
DataFrame, Arrow table          the columns of a CSV file of predictions, or the fields of a JSON line or of COCO
                                results; a named index becomes a column. An unnamed one is ignored, except if it
                                has the ids, as in ``pd.DataFrame(scores, ids, bench.findings)``. In a table with a
                                column per finding, cells are as in a mapping
list of mappings                lines of a prediction file, or COCO results; ``mask`` may be an array
list of prediction objects      predictions as functions such as ``lint_predictions`` return them
mapping ``{id: answer}``        localization: ``{image: {finding: (x, y)}}``, or a cell, a run-length mask or a line's
                                fields instead of the point; findings: ``{study: {label: probability}}`` or
                                ``{study: [labels]}``; tasks: ``{task: text}``
result of a run                 the attribute ``predictions`` of the object, which is one of the above
==============================  ======================================================================================
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.api.bench import AnyBench, Bench, as_asked_bench
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import ScoredFile, ids_of_other_splits, lint_file
from reveal_bench.kinds.folder import WHOLE_SPLIT
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.predictions.files import grid_of, is_run_file, prediction_file, stem_of
from reveal_bench.predictions.limits import LintOptions
from reveal_bench.predictions.number_ids import advice_on_numbers, id_of_number, ids_by_number, number_of
from reveal_bench.predictions.report import IN_FRAME, LintProblem, LintReport

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

UNNAMED = "predictions"
"""Name of predictions that have no other."""
FORMS = "a path, a DataFrame, an Arrow table, a list of mappings, a mapping of ids to answers, or the result of a run"


def lint(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    grid: int | None = None,
    allow_missing: bool = False,
    name: str | None = None,
) -> LintReport:
    """Check predictions against the questions of a split, and report all problems.

    Parameters
    ----------
    predictions : any type of :mod:`reveal_bench.api.inputs`: a path, a DataFrame, a list, a mapping ...
    bench : a benchmark from :func:`~reveal_bench.load`, or an argument of this function
    split : split of `bench`, if `bench` is a folder
    grid : cells per side (localization); by default the folder's
    allow_missing : allow unanswered questions
    name : name in the report for predictions that are not a file; by default a run's model, or "predictions"

    Raises
    ------
    ArgumentError
        If `predictions` or `bench` has another type, or the folder or split does not exist.
    """
    name = name_of(predictions, UNNAMED) if name is None else name
    asked = as_asked_bench(bench, split, runs=[predictions])
    grid = grid_of(predictions, grid) if asked.kind.questions.uses_grid else grid
    options = LintOptions(grid, allow_missing, any_scale=True, name=name)
    report = lint_inputs(predictions, asked, options, "predictions")
    if asked.selection == WHOLE_SPLIT:
        return report
    message, hint = f"checked against {asked.part}", "a leaderboard needs answers to the whole split"
    problem = LintProblem("warning", report.file, None, "", "part", "", message, hint)
    return replace(report, problems=(*report.problems, problem))


def lint_inputs(inputs: Any, bench: Bench, options: LintOptions, argument: str) -> LintReport:
    """Check predictions of any accepted type against the questions of a split.

    Parameters
    ----------
    options : options of the linter; they contain the name in the report for predictions that are not a file
    argument : name of the argument in messages

    Raises
    ------
    ArgumentError
        If the predictions have another type.
    ValueError, OSError
        If a file cannot be read.
    """
    if isinstance(inputs, LintReport) and not inputs.n_entries and inputs.ok:
        return inputs  # every answer is empty, for which a file has no line
    if isinstance(inputs, str | Path):
        path = prediction_file(Path(inputs))
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        options = replace(options, name=_file_name(path, options.name))
        if not bench.kind.predictions.reads_parquet and _is_parquet(path):
            return _lint_parquet(path, bench, options, argument)
        return lint_file(path, bench.dataset, bench.split, options)
    is_run = getattr(inputs, "exchanges", None) is not None
    text, form = (b"", "") if is_run else _written(inputs, bench, argument)
    with tempfile.TemporaryDirectory(prefix="reveal-bench-") as folder:
        path = Path(folder) / "predictions"
        if is_run:
            from reveal_bench.models.run_folder import prediction_files, write_outputs

            write_outputs(path, inputs.exchanges, inputs.info)
            path /= prediction_files(inputs.info.epochs)[0]
        else:
            path.write_bytes(text)
        report = lint_file(path, bench.dataset, bench.split, options)
    return replace(report, format=form) if form else report


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _lint_parquet(path: Path, bench: Bench, options: LintOptions, argument: str) -> LintReport:
    """Read a Parquet file as a DataFrame, for kinds of benchmark whose prediction files are text."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer, most = pq.read_metadata(path), options.limits.entries
        if (n_rows := sum(footer.row_group(i).num_rows for i in range(footer.num_row_groups))) > most:
            raise ValueError(f"{path}: a Parquet file may have at most {most:,} rows, got {n_rows:,}")
        frame = pd.read_parquet(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{path}: not a readable Parquet file: {error}") from None
    report = lint_inputs(frame, bench, options, argument)
    message, hint = "a leaderboard does not accept Parquet here", "`rb.convert(file, bench).write(new)` writes JSONL"
    problem = LintProblem("warning", report.file, None, "", "format", "", message, hint)
    return replace(report, format="parquet", problems=(*report.problems, problem))


def _file_name(path: Path, system: str | None) -> str:
    """Return a file's name for messages; files in run folders have the same name, so it includes the folder's."""
    folder = path.absolute().parent.name
    return f"{folder}/{path.name}" if system == folder else path.name


def name_of(inputs: Any, default: str) -> str:
    """Return the name of a system: its run folder, file or model, or its name in a score; otherwise `default`."""
    inputs = getattr(inputs, "scored", inputs)
    if isinstance(inputs, ScoredFile):
        if inputs.path is None:
            return default if inputs.report.file == UNNAMED else inputs.report.file
        inputs = inputs.path
    if not isinstance(inputs, str | Path):
        return str(getattr(getattr(inputs, "info", None), "model", default))
    path = Path(inputs)
    if is_run_file(path):
        return path.absolute().parent.name
    return path.name if path.is_dir() else stem_of(path)


def named_systems(given: Any, argument: str) -> dict[str, Any]:
    """Return name -> predictions of a mapping or a list, whose items are named by files or "other 1", "other 2" ..."""
    if isinstance(given, list | tuple):
        names = [name_of(one, f"other {i}") for i, one in enumerate(given, 1)]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ArgumentError(argument, "must map names to predictions if file names are equal", repr(repeated[0]))
        given = dict(zip(names, given, strict=True))
    if not isinstance(given, Mapping | None):
        raise ArgumentError(argument, "must map names to predictions, or be a list of predictions", type_of(given))
    return dict(given or {})


def _written(inputs: Any, bench: Bench, argument: str) -> tuple[bytes, str]:
    """Return the content of a prediction file with the inputs, and the format's name for reports ("" if unknown)."""
    kind = bench.kind
    if hasattr(inputs, "predictions"):
        inputs = inputs.predictions
    if hasattr(inputs, "to_pandas") or hasattr(inputs, "to_parquet"):
        return _written_table(inputs, bench, argument)
    ids = IdTexts(bench, argument)
    if isinstance(inputs, Mapping):
        if inputs and all(hasattr(one, "to_pandas") or hasattr(one, "to_parquet") for one in inputs.values()):
            rule = "must be predictions of one system: `rank` takes several by name, and `curves` in `beside`"
            raise ArgumentError(argument, rule, f"those of {', '.join(map(str, inputs))}")
        lines = [line for key, answer in inputs.items() for line in kind.predictions.entries(ids.text(key), answer)]
        return _jsonl(lines, argument), "mapping"
    if not isinstance(inputs, Sequence) or isinstance(inputs, str | bytes | bytearray):
        of_arrays = "; `convert` makes predictions from an array" if hasattr(inputs, "__array__") else ""
        raise ArgumentError(argument, f"must be {FORMS}{of_arrays}", type_of(inputs))
    if inputs and all(is_dataclass(one) for one in inputs):
        return kind.predictions.to_jsonl(inputs).encode(), "list"
    wrong = next((one for one in inputs if not isinstance(one, Mapping)), None)
    if wrong is not None:
        raise ArgumentError(argument, f"must be {FORMS}", f"a {type(inputs).__name__} of {type_of(wrong)}")
    rows = [ids.of_row(one) for one in inputs]
    if rows and "category_id" in rows[0]:
        return _json(rows, argument).encode(), ""
    return _jsonl([kind.predictions.entry(row) for row in rows], argument), "list"


class IdTexts:
    """Ids of a split as text, if a table has them as numbers."""

    def __init__(self, bench: Bench, argument: str) -> None:
        self._bench, self._argument = bench, argument

    @cached_property
    def _ids(self) -> dict[str, None]:
        entries = self._bench.kind.questions.manifest_entries(self._bench.manifest)
        return dict.fromkeys(str(entry[self.key]) for entry in entries)

    @property
    def key(self) -> str:
        """The name of the column with ids."""
        return self._bench.kind.key

    def has(self, value: object) -> bool:
        """Return True if `value` is an id of the split, as text or as a number."""
        return value in self._ids if isinstance(value, str) else id_of_number(value, self._numbered) is not None

    @cached_property
    def _numbered(self) -> dict[float, str]:
        return ids_by_number(self._ids)

    def text(self, value: Any) -> Any:
        """Return the id for which a number stands, and any other value unchanged.

        Raises
        ------
        ArgumentError
            If a number is not exactly one id of the split.
        """
        if isinstance(value, str) or number_of(value) is None:
            return value
        text = id_of_number(value, self._numbered)
        if text is None:
            elsewhere = ids_of_other_splits(self._bench.folder, self._bench.split)
            if home := elsewhere.get(id_of_number(value, ids_by_number(elsewhere)) or ""):
                rule = f"must have ids of split {self._bench.split!r}"
                raise ArgumentError(self._argument, rule, f"{value}, which belongs to split {home!r}")
            rule = f"must have `{self.key}` as text, such as {next(iter(self._ids), 'none')!r}"
            rule += advice_on_numbers([value], self._ids, self.key)
            raise ArgumentError(self._argument, rule, f"the number {value}")
        return text

    def of_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with its id as text, except in COCO results, whose numbers are defined by a COCO dataset."""
        if self.key not in row or number_of(row.get("category_id")) is not None:
            return dict(row)
        return {**row, self.key: self.text(row[self.key])}


def _written_table(inputs: Any, bench: Bench, argument: str) -> tuple[bytes, str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind, ids = bench.kind, IdTexts(bench, argument)
    source = inputs if isinstance(inputs, pa.Table) else with_id_column(frame_of(inputs, argument), ids)
    form = "parquet" if isinstance(source, pa.Table) else IN_FRAME
    names = source.column_names if isinstance(source, pa.Table) else list(source)
    if kind.key in names and set() < set(names) - {kind.key} <= set(bench.info.findings):
        return _written_columns(source, kind, ids, argument), form
    if "mask" in names and not isinstance(source, pa.Table):  # arrays, which Arrow does not store
        records = (
            {str(name): cell for name, cell in row.items() if is_given(cell)} for row in source.to_dict("records")
        )
        return _jsonl([kind.predictions.entry(ids.of_row(row)) for row in records], argument), form
    table = source if isinstance(source, pa.Table) else _arrow(source, argument)
    is_nested = any(pa.types.is_nested(column.type) for column in table.schema)
    if kind.predictions.reads_parquet and not is_nested:
        at = table.schema.get_field_index(kind.key)
        if at >= 0 and not pa.types.is_string(table.schema.field(at).type):
            texts = [ids.text(one) for one in table.column(at).to_pylist()]
            table = table.set_column(at, kind.key, pa.array(texts))
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(None), sink)
        return sink.getvalue().to_pybytes(), form
    if kind.key not in table.column_names:
        rule = f"must have the column `{kind.key}` (`rb.convert` reads other names)"
        raise ArgumentError(argument, rule, ", ".join(table.column_names[:10]) or "no column")
    rows = [ids.of_row({name: value for name, value in row.items() if value is not None}) for row in table.to_pylist()]
    if "category_id" in table.column_names:
        return _json(rows, argument).encode(), ""
    if is_nested:
        return _jsonl([kind.predictions.entry(row) for row in rows], argument), form
    lines = [line for row in rows for line in kind.predictions.entries(row.pop(kind.key, ""), row)]
    return _jsonl(lines, argument), form


def frame_of(inputs: Any, argument: str) -> pd.DataFrame:
    """Return inputs as a pandas DataFrame; a named index becomes a column.

    Raises
    ------
    ArgumentError
        If the inputs cannot become a DataFrame, or have two columns of the same name.
    """
    import pandas as pd

    frame = inputs if isinstance(inputs, pd.DataFrame) else inputs.to_pandas()
    if not isinstance(frame, pd.DataFrame):
        raise ArgumentError(argument, f"must be {FORMS}", type_of(inputs))
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise ArgumentError(argument, "must have each column once", f"{repeated[0]!r} twice")
    return frame.set_axis([name if isinstance(name, str) else repr(name) for name in frame.columns], axis="columns")


def with_id_column(frame: pd.DataFrame, ids: IdTexts) -> pd.DataFrame:
    """Return a table with the ids of its unnamed index, as in ``pd.DataFrame(scores, index=ids)``, in a column."""
    if ids.key not in frame and len(frame) and all(map(ids.has, frame.index)):
        return frame.rename_axis(ids.key).reset_index()
    return frame


def _written_columns(source: pa.Table | pd.DataFrame, kind: AnyKind, ids: IdTexts, argument: str) -> bytes:
    """Return the content of a prediction file with a table that has a column per finding."""
    import pyarrow as pa

    rows = source.to_pylist() if isinstance(source, pa.Table) else source.to_dict("records")
    answers = [
        (ids.text(row.pop(ids.key)), {name: cell for name, cell in row.items() if is_given(cell)}) for row in rows
    ]
    return _jsonl([line for key, answer in answers for line in kind.predictions.entries(key, answer)], argument)


def is_given(cell: Any) -> bool:
    """Return True if a cell of a table is not empty or NaN."""
    import pandas as pd

    return not (pd.api.types.is_scalar(cell) and pd.isna(cell))


def _arrow(frame: pd.DataFrame, argument: str) -> pa.Table:
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ArgumentError(argument, "must have values of one type in each column", str(error.args[0])) from None


def _jsonl(lines: Sequence[Mapping[str, Any]], argument: str) -> bytes:
    return "".join(f"{_json(line, argument)}\n" for line in lines).encode()


def _json(value: Any, argument: str) -> str:
    def plain(one: Any) -> Any:
        # Numpy and torch values have this method, which returns a number or a list of numbers
        if hasattr(one, "tolist"):
            return one.tolist()
        raise ArgumentError(argument, "must contain only texts, numbers, lists and mappings", type_of(one))

    return json.dumps(value, default=plain)


def type_of(value: Any) -> str:
    """Return the type of a value for messages, such as "a list" or "a numpy.ndarray"."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
