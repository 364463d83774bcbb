"""The message for a keyword argument that a function does not have."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_INSTEAD = {
    "findings": "`bench.select(findings)` as `bench`",
    "n_boot": "`n_resamples`",
    "thresholds": "`score(..., thresholds=...)` as predictions",
}
"""Argument that is often passed to a function without it -> what to pass instead."""


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` with a TypeError for unknown keyword arguments that names a similar one, or all.

    Examples
    --------
    >>> suggest_keywords(lambda x, *, metric=None: x)(1, metrics="F1")
    Traceback (most recent call last):
    TypeError: <lambda>() has no argument `metrics`; did you mean `metric`?
    """
    names = list(signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs.keys() - names:
            similar = get_close_matches(name, names, n=1, cutoff=0.75)
            meant = f"`{similar[0]}`" if similar else _INSTEAD.get(name)
            hint = f"did you mean {meant}?" if meant else f"it has {', '.join(names)}"
            raise TypeError(f"{function.__name__}() has no argument `{name}`; {hint}")
        return function(*args, **kwargs)

    return call
