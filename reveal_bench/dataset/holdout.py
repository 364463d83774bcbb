"""Division of a split into a released and a private half, by patient.

Patients are sorted by a hash of the seed and their id, and the first of them become private. No patient is in both
halves. The order of two patients does not depend on other patients, so if a dataset grows or shrinks by a few patients,
only a few patients change to the other half. If the halves of an earlier version are given, no patient changes. The
rows of each half are also sorted by such a hash, because the order of a source's table may reveal its contents. If
records are already divided, they are only checked and sorted.

If several random divisions are drawn, each with its own hash, the division with the most similar halves is used
(:func:`reveal_bench.dataset.balance.best_draw`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray
from reveal_bench.dataset.balance import Column, Draws, best_draw
from reveal_bench.dataset.row_pool import Spool
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import FolderInfo, read_folder_info, split_shards
from reveal_bench.sources.source import BuildError, Problem

RELEASED, HOLDOUT = "released", "holdout"


def shuffle_key(seed: int | str, key: str) -> bytes:
    """Return a sort key for `key`: a hash that depends on `seed`."""
    return hashlib.sha256(f"{seed}\0{key}".encode()).digest()


def divide_patients(
    patient_ids: Iterable[str],
    *,
    fraction: float,
    seed: int | str,
    private_before: Collection[str] = (),
    released_before: Collection[str] = (),
) -> set[str]:
    """Return the patients of the holdout, drawn at random from `patient_ids`.

    Parameters
    ----------
    patient_ids : ids of the patients; repetitions do not matter
    fraction : proportion of private patients, in (0, 1); their number is rounded half up, and each half gets at least
        one patient
    private_before, released_before : patients of an earlier version, who stay in their half, even if more patients must
        then be private than `fraction` says

    Raises
    ------
    ValueError
        If `fraction` is out of range, there are fewer than two patients, a patient was in both halves before, or the
        earlier version leaves one half empty.

    Examples
    --------
    >>> sorted(divide_patients("abcd", fraction=0.5, seed=0))
    ['c', 'd']
    >>> sorted(divide_patients("abcde", fraction=0.5, seed=0, private_before="ab", released_before="d"))
    ['a', 'b', 'c']
    """
    if not 0 < fraction < 1:
        raise ArgumentError("holdout_fraction", "must be in (0, 1)", fraction)
    patients = set(patient_ids)
    if len(patients) < 2:
        raise ValueError(f"a holdout needs at least 2 patients to divide, got {len(patients)}")
    both = set(private_before) & set(released_before)
    if both:
        raise ArgumentError("previous", "must have each patient in only one half", f"{min(both)!r} in both")
    n_private = min(max(math.floor(fraction * len(patients) + 0.5), 1), len(patients) - 1)
    private = patients & set(private_before)
    free = sorted(patients - private - set(released_before), key=lambda patient: shuffle_key(seed, patient))
    private |= set(free[: max(n_private - len(private), 0)])
    if not private or private == patients:
        raise ArgumentError("previous", "must leave patients for both halves", "all patients in one half")
    return private


@dataclass(frozen=True, slots=True)
class Division:
    """The division of a dataset's patients into a released and a private half.

    Attributes
    ----------
    fraction, seed, private_before, released_before : as in :func:`divide_patients`
    best_of : number of random divisions, of which the best balanced is used; the first uses `seed` unchanged
    is_predivided : True if the records are already divided into the splits "released" and "holdout"
    retire : True if formerly private patients may be released
    overwritten : (private, released) patients in the folders that are replaced
    private_keys : keys of the rows that were private in the earlier version and in the folder that is replaced
    """

    fraction: float
    seed: int
    private_before: frozenset[str]
    released_before: frozenset[str]
    best_of: int = 1
    is_predivided: bool = False
    retire: bool = False
    overwritten: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    private_keys: frozenset[str] = frozenset()

    def check(self, spools: Mapping[str, Spool]) -> None:
        """Check that patients of the earlier version stay in their half.

        Raises
        ------
        BuildError
            For records that are already divided: with every patient who is in both halves, or who was in the other half
            in the earlier version or in the folders that are replaced.
        ValueError
            If the earlier version has no patient in common with this one.
        """
        before = self.private_before | self.released_before
        if before and before.isdisjoint(row["patient_id"] for spool in spools.values() for row, _ in spool.rows()):
            rule = (
                "must have a patient in common with this version; ids made with different secrets (`id_key`) "
                "never agree"
            )
            raise ArgumentError("previous", rule, "no such patient", ("id_key",))
        if not self.is_predivided:
            return
        problems = []
        private_before = self.private_before | self.overwritten[0]
        released_before = self.released_before | self.overwritten[1]
        private = {row["patient_id"] for row, _ in spools[HOLDOUT].rows()}
        for split, spool in spools.items():
            for row, _ in spool.rows():
                patient = row["patient_id"]
                if split == HOLDOUT and patient in released_before:
                    problems.append(Problem(split, None, "patient_id", "must not have been released before", patient))
                elif split != HOLDOUT and patient in private:
                    problems.append(Problem(split, None, "patient_id", "must not also be in the holdout", patient))
                elif split != HOLDOUT and patient in private_before and not self.retire:
                    rule = "must stay private unless the holdout is retired"
                    problems.append(Problem(split, None, "patient_id", rule, patient))
        if problems:
            raise BuildError(list(dict.fromkeys(problems)))

    def check_released(self, split_of: Mapping[str, str], key: str) -> None:
        """Raise BuildError if a formerly private row is now public, unless the holdout is retired.

        Parameters
        ----------
        split_of : dict from key to split of each public row
        key : name of the key's column
        """
        rule = (
            "must stay private unless the holdout is retired, because `previous` or the replaced folder "
            "lists it as private"
        )
        if not self.retire and (unveiled := sorted(self.private_keys & split_of.keys())):
            raise BuildError([Problem(split_of[value], None, key, rule, value) for value in unveiled])

    def draw(self, patients: Sequence[str], columns: Sequence[Column], *, n_released: int = 0) -> Draws:
        """Return the division of a split's rows, with the best balance of `best_of` draws.

        Parameters
        ----------
        patients : patient of every row
        columns : columns of the rows by which the balance is judged
        n_released : if the records are already divided, number of released rows, which come first

        Raises
        ------
        ValueError
            If a patient of the folders that are replaced would change to the other half.
        """
        if self.is_predivided:
            return best_draw([np.arange(len(patients)) >= n_released], columns)
        draws = best_draw((self._drawn(patients, number) for number in range(1, self.best_of + 1)), columns)
        self._check_overwritten(dict(zip(patients, draws.is_holdout.tolist(), strict=True)))
        return draws

    def _check_overwritten(self, is_private: Mapping[str, bool]) -> None:
        private, released = self.overwritten
        if not (private or released):
            return
        remedy = "or remove the replaced folders to draw a new holdout"
        if not is_private.keys() & (private | released):
            rule = "must replace folders that have a patient in common with this build: use the same `id_key`, "
            raise ArgumentError("overwrite", rule + remedy, "no such patient", ("id_key",))
        n_withdrawn = sum(is_private.get(patient, False) for patient in released)
        n_unveiled = sum(not is_private.get(patient, True) for patient in private)
        if n_withdrawn or n_unveiled:
            rule = (
                "must leave each patient of the replaced folders in the same half: use the same `seed`, "
                f"or pass the replaced folders as `previous` and `previous_holdout`, {remedy}"
            )
            value = f"seed {self.seed}, with which {n_unveiled:,} private patients would be released and "
            value += f"{n_withdrawn:,} released patients would become private"
            raise ArgumentError("overwrite", rule, value, ("seed", "previous", "previous_holdout"))

    def _drawn(self, patients: Sequence[str], number: int) -> BoolArray:
        private = divide_patients(
            patients,
            fraction=self.fraction,
            seed=self.seed if number == 1 else f"{self.seed} draw {number}",
            private_before=self.private_before,
            released_before=self.released_before,
        )
        return np.array([patient in private for patient in patients])


def patients_of(folder: Path, splits: Iterable[str] | None = None) -> frozenset[str]:
    """Return the patients with references in a dataset folder, or in some of its splits.

    Raises
    ------
    ValueError
        If `folder` is not a dataset folder, or none of the splits has references.
    """
    import pyarrow.parquet as pq

    shards = _reference_shards(folder, read_folder_info(folder).splits if splits is None else splits)
    if not shards:
        raise ValueError(f"{folder} must contain references, got none")
    return frozenset(
        patient
        for shard in shards
        for patient in pq.read_table(shard, columns=["patient_id"])["patient_id"].to_pylist()
    )


def _reference_shards(folder: Path, splits: Iterable[str]) -> list[Path]:
    return [shard for kind in KINDS.values() for split in splits for shard in split_shards(folder, kind.config, split)]


def private_keys(folder: Path | None, key: str) -> frozenset[str]:
    """Return the values of column `key` of the rows that a dataset folder's manifest lists as private.

    The result is empty for None, for a new folder, and for a folder of another kind of benchmark (whose key column has
    another name).
    """
    import pyarrow.parquet as pq

    info = None if folder is None else _replaced(folder)
    if folder is None or info is None:
        return frozenset()
    private = (split for split, entry in info.splits.items() if entry.get("references") == "private")
    manifests = [folder / "manifest" / f"{split}.parquet" for split in private]
    tables = [pq.read_table(path) for path in manifests if path.exists()]
    return frozenset(value for table in tables if key in table.column_names for value in table[key].to_pylist())


def patients_overwritten(out: Path, holdout: Path | None) -> tuple[frozenset[str], frozenset[str]]:
    """Return (private, released) patients in the folders that a build with a holdout is about to replace."""

    def patients(folder: Path, split: str) -> frozenset[str]:
        info = _replaced(folder)
        return patients_of(folder, (split,)) if info and _reference_shards(folder, {split}) else frozenset()

    return (frozenset(), frozenset()) if holdout is None else (patients(holdout, HOLDOUT), patients(out, RELEASED))


def _replaced(folder: Path) -> FolderInfo | None:
    """Return the description of a dataset folder that a build replaces; None if the folder is new or empty.

    A folder whose description is missing or damaged is refused, because its private patients cannot be determined.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    try:
        return read_folder_info(folder)
    except ValueError as error:
        rule = "must only replace a readable dataset folder: remove any other folder first"
        raise ArgumentError("overwrite", rule, error) from None


def check_overwritten(out: Path, holdout: Path | None) -> None:
    """Raise ValueError if replacing the folder `out` would make private references public.

    This is the case if `out` is the private folder of a holdout, or if `out` has a holdout and the new build has none.
    """
    info = _replaced(out)
    if info is None:
        return
    splits = info.splits
    references = {entry.get("references") for entry in splits.values()}
    if references == {"private"} and _reference_shards(out, splits):
        rule = (
            "must not replace the private folder of a holdout by a public folder: build elsewhere, or remove "
            "the private folder"
        )
        raise ArgumentError("overwrite", rule, out)
    if "private" in references and holdout is None:
        rule = "must not replace a folder with a private holdout by a folder in which all references are public: "
        rule += "pass `holdout`, or remove the folder to give up its holdout"
        raise ArgumentError("overwrite", rule, out, ("holdout",))


def patients_before(
    previous: Path | None, previous_holdout: Path | None, holdout: Path | None
) -> tuple[frozenset[str], frozenset[str]]:
    """Return (private, released) patients of an earlier version.

    Raises
    ------
    ValueError
        If only one of the folders is given, or the new build has no holdout.
    """
    if previous is None and previous_holdout is None:
        return frozenset(), frozenset()
    if previous is None or previous_holdout is None or holdout is None:
        rule = "and `previous_holdout` must be given together, and only with a `holdout`"
        raise ArgumentError("previous", rule, others=("previous_holdout", "holdout"))
    return patients_of(previous_holdout), patients_of(previous)


def check_name(path: Path, *, what: str, overwrite: bool) -> None:
    """Raise ValueError if the target `path` is a file, or a non-empty folder and `overwrite` is False."""
    if path.is_dir():
        if not overwrite and any(path.iterdir()):
            raise ArgumentError(what, "must be a new or empty folder unless `overwrite` is set", path, ("overwrite",))
    elif path.exists():
        raise ArgumentError(what, "must be a folder", f"the file {path}")


def check_apart(out: Path, holdout: Path) -> None:
    """Raise ValueError if the public and the private folder are the same or one contains the other (links resolved)."""
    public, private = out.resolve(), holdout.resolve()
    if public == private or public in private.parents or private in public.parents:
        raise ArgumentError("holdout", f"must neither be inside `out` ({out}) nor contain `out`", holdout, ("out",))
