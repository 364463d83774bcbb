"""Functions and classes that tests send to other processes, which import only this file and no test's libraries."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.images import PictureFile
from reveal_bench.scale.tasks import TaskPlace

__all__ = ["Deadly", "DeadlyOnce", "square"]


class Deadly(PictureFile):
    """A picture that ends every process that decodes it."""

    def __getattribute__(self, name: str) -> Any:
        if name == "kind":
            os._exit(9)
        return super().__getattribute__(name)

    def __repr__(self) -> str:
        return "deadly"

    def __reduce__(self) -> tuple[Any, ...]:
        return Deadly, (self.path, self.name, self.source_path)


class DeadlyOnce(PictureFile):
    """A picture that ends the first process that decodes it, except the one named in the file `armed`."""

    def __getattribute__(self, name: str) -> Any:
        if name == "kind":
            armed = self.path.parent.parent / "armed"
            with suppress(FileNotFoundError):
                if armed.read_text() != str(os.getpid()):
                    armed.unlink()
                    os._exit(9)
        return super().__getattribute__(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return DeadlyOnce, (self.path, self.name, self.source_path)


def square(place: TaskPlace, number: int) -> dict[str, int]:
    """A task; 13 cannot be squared, and 99 ends the process."""
    if number == 13:
        raise ArgumentError("number", "must bring luck", number)
    if number == 99:
        os._exit(9)
    place.write(b"%d" % number**2, ".txt")
    return {"square": number**2}
