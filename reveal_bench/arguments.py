"""Problems of arguments and of files as objects, so that a page can show them without parsing a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class ArgumentError(ValueError):
    """The error of an argument that breaks its rule.

    Parameters
    ----------
    argument : name of the argument
    rule : rule that the argument breaks, such as "must be new"
    value : value of the argument as the message shows it; None if there is nothing to show
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
        super().__init__(argument, rule, value, others)  # all four: pickle calls the class with `args`
        self.argument, self.rule, self.value, self.others = argument, rule, value, others

    def __str__(self) -> str:
        return self.spelled(lambda name: f"`{name}`")

    def __repr__(self) -> str:  # for notebooks; the default would show `args` as a tuple
        return f"{type(self).__name__}({str(self)!r})"

    def spelled(self, spell: Callable[[str], str]) -> str:
        """Return the message with every argument named by `spell`, for example as an option of a command line."""
        rule = self.rule
        for name in self.others:
            rule = rule.replace(f"`{name}`", spell(name))
        return f"{spell(self.argument)} {rule}" + ("" if self.value is None else f", got {self.value}")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem at one place of one file, with the rule and the value.

    Attributes
    ----------
    file : path relative to the root
    row : number of a row, line or entry, counted from 1, the id of an entry, or None for the whole file
    field, rule, value : name of the field, the rule that it breaks, and its value
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
