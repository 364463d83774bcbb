"""Score predictions that arrive in batches, as in a training loop, in the words of torchmetrics."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from reveal_bench.api.batches import (
    array_of,
    check_cells,
    check_shape,
    detector_rows,
    is_detector_output,
    is_table,
    named_table,
    numbered_categories,
)
from reveal_bench.api.bench import AnyBench, as_bench, load
from reveal_bench.api.conversion import convert
from reveal_bench.api.inputs import IdTexts, with_id_column
from reveal_bench.api.score_tables import Scores
from reveal_bench.api.scoring import score
from reveal_bench.arguments import ArgumentError
from reveal_bench.predictions.report import LintReport


class Accumulator:
    """Predictions collected batch by batch, and scored like those of :func:`reveal_bench.score`.

    Parameters
    ----------
    bench, split : as in :func:`reveal_bench.score`
    categories : names of a detector's labels by number: a mapping, or a list that starts at `first_category`
    first_category : number of the first of `categories`; 1 if a detector's label 0 is the background
    **options : further options of :func:`reveal_bench.score`, such as ``n_resamples=100``

    Raises
    ------
    TypeError
        If an option is unknown.

    Examples
    --------
    >>> metric = rb.Accumulator("data/chexpert", n_resamples=100)  # doctest: +SKIP
    >>> for epoch in range(50):  # doctest: +SKIP
    ...     metric.reset()
    ...     for images, ids in loader:
    ...         metric.update(model(images).sigmoid(), ids)
    ...     print(metric.compute())
    """

    def __init__(
        self,
        bench: AnyBench,
        *,
        split: str | None = None,
        categories: Sequence[str] | Mapping[int, str] | None = None,
        first_category: int = 1,
        **options: Any,
    ) -> None:
        inspect.signature(score).bind(None, bench, **options)
        self._bench = as_bench(bench, split)
        self._whole = load(self._bench.folder, self._bench.split)
        self._options = options
        self._categories = numbered_categories(categories or (), first_category)
        self._lines: list[Mapping[str, Any]] = []
        self._ids: set[Any] = set()

    def update(self, predictions: Any, ids: Sequence[Any] | None = None) -> None:
        """Add the predictions of a batch.

        Parameters
        ----------
        predictions : with `ids`, an array or tensor (n, n_findings) of probabilities in the order of
            ``bench.findings``, or the boxes, labels and scores of a torchvision detector for each image, which may be
            empty; without `ids`, a list of lines of a prediction file, or a mapping of ids to answers. A DataFrame, or
            a mapping of findings to columns with `ids`, is read by its names
        ids : ids of the studies or images in the batch, as text or as numbers; those of a DataFrame must be equal, if a
            column or its index has them

        Raises
        ------
        ArgumentError
            If `predictions` do not fit `ids` or the benchmark, or an id repeats since the last :meth:`reset`.
        """
        new = [] if ids is None else list(ids)
        if len({*new} - self._ids) < len(new):
            repeated = next(one for one in new if one in self._ids or new.count(one) > 1)
            raise ArgumentError("ids", "must not repeat: call `reset()` before each epoch", repr(repeated))
        if ids is not None and is_detector_output(predictions):
            rows, _ = detector_rows(predictions, ids, self._whole)
            if rows:
                done = convert(rows, self._whole, boxes="xyxy", categories=self._categories)
                self._lines += done.lines
        elif is_table(predictions) or (ids is not None and isinstance(predictions, Mapping)):
            is_numbered = isinstance(getattr(predictions, "columns", None), pd.RangeIndex)
            labels = self._bench.findings if is_numbered else None
            self._lines += self._table_lines(
                named_table(predictions, self._whole, "predictions", labels=labels, ids=ids)
            )
        elif ids is None:
            self._lines += self._lines_of(predictions)
        else:
            array, findings = array_of(predictions), list(self._bench.findings)
            check_shape(array, "predictions", len(findings), ids)
            table = pd.DataFrame(array, columns=findings)
            self._lines += self._table_lines(named_table(table, self._whole, "predictions", ids=ids))
        self._ids.update(new)

    def _table_lines(self, frame: pd.DataFrame) -> Sequence[Mapping[str, Any]]:
        frame = with_id_column(frame, IdTexts(self._whole, "predictions"))
        if self._bench.kind.key in frame and set(self._whole.info.findings) & set(frame):
            check_cells(frame, self._whole, "predictions")
        return convert(frame, self._whole, categories=self._categories or None).lines

    def _lines_of(self, predictions: Any) -> Sequence[Mapping[str, Any]]:
        if isinstance(predictions, Mapping):
            entries = self._bench.kind.predictions.entries
            return [line for key, answer in predictions.items() for line in entries(key, answer)]
        if not isinstance(predictions, Sequence) or not all(isinstance(one, Mapping) for one in predictions):
            rule = "must be a list of lines or a mapping of ids to answers unless `ids` are given"
            raise ArgumentError("predictions", rule, type(predictions).__name__, ("ids",))
        return predictions

    def compute(self) -> Scores:
        """Return the scores of all predictions since the last :meth:`reset`.

        Raises
        ------
        LintError, ValueError
            As :func:`reveal_bench.score`, for example if an id was predicted twice or not at all.
        """
        if self._ids and not self._lines and not self._bench.kind.questions.uses_grid:
            n_questions = len(self._bench.cases.records)
            nothing = LintReport("predictions", "list", 0, (), (), (), {}, n_questions=n_questions)
            return score(nothing, self._bench, **self._options)
        return score(self._lines, self._bench, **self._options)

    def reset(self) -> None:
        """Remove all predictions, for the next epoch."""
        self._lines, self._ids = [], set()
