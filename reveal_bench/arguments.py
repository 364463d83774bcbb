"""Structured errors of arguments and problems of files, so that a web page can show them without parsing messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PROBABILITY_RULE = "must be in [0, 1]; for logits, apply the sigmoid first (torch.sigmoid, scipy.special.expit)"


class ArgumentError(ValueError):
    """The error of an invalid argument.

    Parameters
    ----------
    argument : name of the argument
    rule : rule that the argument breaks, such as "must be new"
    value : value of the argument for the message; None to omit the value
    others : further arguments that the rule names in backticks

    Examples
    --------
    >>> error = ArgumentError("out", "must be new unless `overwrite` is set", "a.txt", ("overwrite",))
    >>> str(error)
    '`out` must be new unless `overwrite` is set, got a.txt'
    >>> error
    ArgumentError('`out` must be new unless `overwrite` is set, got a.txt')
    >>> error.spelled(lambda name: f"--{name}")
    '--out must be new unless --overwrite is set, got a.txt'
    """

    def __init__(self, argument: str, rule: str, value: object = None, others: tuple[str, ...] = ()) -> None:
        super().__init__(argument, rule, value, others)  # all arguments, because unpickling calls the class with `args`
        self.argument, self.rule, self.value, self.others = argument, rule, value, others

    def __str__(self) -> str:
        return self.spelled(lambda name: f"`{name}`")

    def __repr__(self) -> str:  # for notebooks, because the default would show `args` as a tuple
        return f"{type(self).__name__}({str(self)!r})"

    def spelled(self, spell: Callable[[str], str]) -> str:
        """Return the message in which `spell` turns argument names into text, for example into command line options."""
        rule = self.rule
        for name in self.others:
            rule = rule.replace(f"`{name}`", spell(name))
        return f"{spell(self.argument)} {rule}" + ("" if self.value is None else f", got {self.value}")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file: where it is, which rule is broken, and by which value.

    Attributes
    ----------
    file : path relative to the root
    row : 1-based number of a row, line or entry; or the id of an entry; None for the whole file
    field, rule, value : name of the field, rule that it breaks, and its value
    """

    file: str
    row: int | str | None
    field: str
    rule: str
    value: str

    def __str__(self) -> str:
        place = self.file if self.row is None else f"{self.file}:{self.row}"
        text = f"{place}: `{self.field}` {self.rule}, got {self.value}"
        return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
