"""A checked folder against the repository it goes to: may it, what differs, did it arrive."""

from __future__ import annotations

from collections.abc import Mapping

from reveal_bench.builders.hub_checks import Publication, PublishRefusedError
from reveal_bench.builders.hub_errors import HubError, ParentMovedError
from reveal_bench.builders.hub_repository import RemoteFile, Repository, State
from reveal_bench.builders.source import Problem
from reveal_bench.records import FOLDER_INFO

__all__ = ["check_arrived", "check_parent", "check_repository", "check_sent", "difference", "opened"]

KEPT = ".gitattributes"
"""The Hub's own file."""

_PLACEHOLDERS = {KEPT, "README.md", "LICENSE", ".gitignore"}
"""Files of a repository made on the web page, which may be replaced."""


def opened(repository: Repository, publication: Publication) -> State:
    """The state of the repository, which is made if it is missing, with the visibility asked for."""
    state = repository.state()
    if state is None:
        repository.create(private=publication.private)
        state = repository.state()
        if state is None:
            raise HubError(f"{repository.url} was made, but this token may not read it")
    if state.private != publication.private:
        must, got = ("private", "public") if publication.private else ("public", "private")
        raise _refused(
            publication,
            [Problem(repository.url, None, "visibility", f"must be {must}, as asked; it is never changed here", got)],
        )
    return state


def _refused(publication: Publication, problems: list[Problem]) -> PublishRefusedError:
    return PublishRefusedError(str(publication.folder), problems)


def check_repository(
    repository: Repository, publication: Publication, state: State, there: Mapping[str, RemoteFile]
) -> None:
    """Refuse a repository that holds something else, and a version that stands for other content already."""
    problems = []
    if FOLDER_INFO in there and state.head is not None:
        remote, info = repository.read_info(state.head), publication.info
        if remote.get("benchmark") != info.benchmark:
            rule = f"must be {info.benchmark}, as in the folder"
            problems.append(Problem(repository.url, None, "benchmark", rule, repr(remote.get("benchmark"))))
        here, elsewhere = _references(info.splits), _references(remote.get("splits"))
        if here != elsewhere:
            rule = f"must be {here}, as in the folder: a holdout and a public folder have a repository each"
            problems.append(Problem(repository.url, None, "references", rule, elsewhere))
        elif here == "public":
            problems += _released_problems(repository, publication, state)
    elif set(there) - _PLACEHOLDERS:
        rule = "must be those of a dataset folder: these would be removed"
        some = ", ".join(sorted(set(there) - _PLACEHOLDERS)[:5])
        problems.append(Problem(repository.url, None, "files", rule, some))
    for tag in sorted({f"v{publication.info.version}", publication.tag} & set(state.tags)):
        changed, removed = difference(publication, repository.files(state.tags[tag]))
        if changed or removed:
            files = sorted({*changed, *removed})
            rule = f"must name this content, but {tag} names another, and tags never move: build a new version"
            got = f"{len(files)} other file" + ("s" if len(files) > 1 else "") + f", {', '.join(files[:3])}"
            problems.append(Problem(repository.url, None, "tag", rule, got))
    if problems:
        raise _refused(publication, problems)


def _released_problems(repository: Repository, publication: Publication, state: State) -> list[Problem]:
    """Rows that were private in an earlier version and would be public in this one."""
    import pyarrow.parquet as pq

    public: dict[str, str] = {}
    for split, entry in publication.info.splits.items():
        if entry.get("references") == "public":
            keys = pq.read_table(publication.folder / "manifest" / f"{split}.parquet").column(0).to_pylist()
            public |= dict.fromkeys(keys, split)
    problems = []
    for tag, commit in {"main": state.head, **state.tags}.items():
        released = sorted(repository.private_keys(commit) & public.keys()) if commit is not None else []
        if released:
            rule = f"must not hold what was private in {tag}: build with `previous` and `previous_holdout`"
            count = f"{len(released)} such row" + ("s" if len(released) > 1 else "")
            problems.append(Problem(public[released[0]], released[0], "split", rule, count))
    return problems


def _references(splits: object) -> str:
    """ "public" if a folder with these splits holds the references of one of them, else "private"."""
    entries = splits.values() if isinstance(splits, dict) else ()
    is_public = any(isinstance(entry, dict) and entry.get("references") == "public" for entry in entries)
    return "public" if is_public else "private"


def check_parent(repository: Repository, state: State, parent: str | None) -> None:
    """Raise ParentMovedError unless `main` is where the caller says that it is."""
    if parent is not None and (state.head is None or not state.head.startswith(parent)):
        raise ParentMovedError(
            f"`main` of {repository.url} must be at {parent}, got {state.head}: nothing was published"
        )


def difference(publication: Publication, there: Mapping[str, RemoteFile]) -> tuple[list[str], list[str]]:
    """Files to send, and files to remove, to make `there` the folder."""
    changed = [
        name
        for name, sha256 in publication.files.items()
        if name not in there or not there[name].holds(publication.folder / name, sha256)
    ]
    return changed, sorted(set(there) - set(publication.files) - {KEPT})


def check_sent(publication: Publication, sent: Mapping[str, str]) -> None:
    """Refuse to commit a file that is no longer the one that was checked; `sent` is path -> sha256."""
    altered = sorted(name for name, sha256 in sent.items() if sha256 != publication.files[name])
    if altered:
        rule = "must not change while they are published"
        raise _refused(publication, [Problem(name, None, "sha256", rule, "another") for name in altered])


def check_arrived(repository: Repository, publication: Publication, commit: str) -> None:
    """Raise HubError unless the commit holds the folder and nothing else."""
    changed, removed = difference(publication, repository.files(commit))
    if changed or removed:
        raise HubError(
            f"{repository.url} serves other files at {commit[:8]} than were sent "
            f"({', '.join([*changed, *removed][:3])}): it is not tagged; look at the repository before you try again"
        )
