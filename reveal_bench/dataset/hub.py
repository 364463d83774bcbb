"""Publication of a dataset folder to the Hugging Face Hub as one commit with one tag.

Stages of :func:`publish`
-------------------------
1. Run every check of :mod:`reveal_bench.dataset.hub_checks`, without network.
2. Look at the repository. An existing repository must have the requested visibility, and be empty or contain an earlier
   version of the same benchmark; a missing repository is created. It is gated (users must request access) if the card
   has texts for requests (``extra_gated_*``).
3. Make one commit of all changes, including the card, on top of the commit that stage 2 read. Files that the folder
   lacks are removed, except ``.gitattributes``.
4. Compare every file on the Hub with the checked file, and check the visibility and gate again.
5. Set the tag.

A tag never moves. If the tag already exists, nothing is done if its content equals the folder; otherwise this is an
error. If `main` already has the folder's content, for example after an interruption between stages 3 and 5, only the
tag is made. Repeating the same command is therefore always safe.

The environment variable `HF_ENDPOINT` selects the Hub (read when `huggingface_hub` is imported); `endpoint` overrides
the variable.

Functions of this module also check whether a repository is suitable for a folder, which files differ, and whether all
files arrived.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.dataset.hub_checks import Progress, Publication, PublishRefusedError, prepare, prepare_holdout
from reveal_bench.dataset.hub_repository import HubError, ParentMovedError, RemoteFile, Repository, State, hub_errors
from reveal_bench.files import FOLDER_INFO
from reveal_bench.sources.source import Problem
from reveal_bench.words import count_text

__all__ = [
    "HubError",
    "ParentMovedError",
    "Publication",
    "PublishRefusedError",
    "PublishResult",
    "check_holdout_token",
    "find_token",
    "hub_errors",
    "prepare",
    "prepare_holdout",
    "publish",
    "publish_holdout",
    "send",
]

KEPT = ".gitattributes"
"""File that the Hub itself maintains."""

_PLACEHOLDERS = {KEPT, "README.md", "LICENSE", ".gitignore"}
"""Files of a new repository created on the web page, which may be replaced."""


def read_remote(repository: Repository, publication: Publication) -> tuple[State | None, dict[str, RemoteFile]]:
    """Return (state, files) of a repository; (None, {}) if it is missing.

    A repository that is unsuitable for the publication raises an error. Nothing is sent or changed.
    """
    state = repository.state()
    if state is None:
        return None, {}
    check_visibility(repository, publication, state)
    there = {} if state.head is None else repository.files(state.head)
    check_repository(repository, publication, state, there)
    return state, there


def check_visibility(repository: Repository, publication: Publication, state: State) -> None:
    """Raise an error if the repository's visibility (public or private) is not the requested visibility."""
    if state.private != publication.private:
        must, got = ("private", "public") if publication.private else ("public", "private")
        rule = f"must be {must}, as requested; an existing repository's visibility is never changed"
        raise _refused(publication, [Problem(repository.url, None, "visibility", rule, got)])


def gate(repository: Repository, publication: Publication, state: State) -> None:
    """Gate the repository (users must request access) if the card says so, and check that the Hub did so."""
    if publication.gated and not state.gated:
        repository.gate()
        if not _seen(repository).gated:
            raise HubError(f"{repository.url} must be gated, as the card says, but the Hub did not gate it")


def _seen(repository: Repository) -> State:
    state = repository.state()
    if state is None:
        raise HubError(f"{repository.url} is missing, or this token may not read it")
    return state


def _refused(publication: Publication, problems: list[Problem]) -> PublishRefusedError:
    return PublishRefusedError(str(publication.folder), problems)


def check_repository(
    repository: Repository, publication: Publication, state: State, there: Mapping[str, RemoteFile]
) -> None:
    """Raise an error if the repository has another benchmark or kind of folder, or if the tag names other files."""
    problems = []
    if FOLDER_INFO in there and state.head is not None:
        remote, info = repository.read_info(state.head), publication.info
        if remote.get("benchmark") != info.benchmark:
            rule = f"must be {info.benchmark}, the benchmark of the folder"
            problems.append(Problem(repository.url, None, "benchmark", rule, repr(remote.get("benchmark"))))
        here, elsewhere = _references(info.splits), _references(remote.get("splits"))
        if here != elsewhere:
            rule = f"must be {here}, as in the folder: a holdout and a public folder need separate repositories"
            problems.append(Problem(repository.url, None, "references", rule, elsewhere))
        elif here == "public" and not publication.retires_holdout:
            problems += _released_problems(repository, publication, state)
    elif set(there) - _PLACEHOLDERS:
        rule = "must belong to a dataset folder, because other files would be removed"
        some = ", ".join(sorted(set(there) - _PLACEHOLDERS)[:5])
        problems.append(Problem(repository.url, None, "files", rule, some))
    for tag in sorted({f"v{publication.info.version}", publication.tag} & set(state.tags)):
        changed, removed = difference(publication, repository.files(state.tags[tag]))
        if changed or removed:
            files = sorted({*changed, *removed})
            rule = f"must be new, but {tag} exists with other content. Tags never move, so build a new version"
            got = f"{count_text(len(files), 'other file')}, {', '.join(files[:3])}"
            problems.append(Problem(repository.url, None, "tag", rule, got))
    if problems:
        raise _refused(publication, problems)


def _released_problems(repository: Repository, publication: Publication, state: State) -> list[Problem]:
    """Return a problem for rows that become public, but were private in an earlier version and never public."""
    import pyarrow.parquet as pq

    split_of: dict[str, str] = {}
    for split in publication.info.splits:
        keys = pq.read_table(publication.folder / "manifest" / f"{split}.parquet").column(0).to_pylist()
        split_of |= dict.fromkeys(keys, split)
    before = repository.keys(state.head, "private") if state.head is not None else set()
    if before and split_of.keys().isdisjoint(before | repository.keys(str(state.head), "public")):
        rule = "must have a row in common with the previous version; ids made with different secrets never agree"
        return [Problem("manifest", None, "id", rule, "none")]
    splits = publication.info.splits
    public = {key: split for key, split in split_of.items() if splits[split].get("references") == "public"}
    commits = {commit: tag for tag, commit in {"main": state.head, **state.tags}.items() if commit is not None}
    private = {tag: repository.keys(commit, "private") & public.keys() for commit, tag in commits.items()}
    known = set().union(*(repository.keys(commit, "public") for commit in commits)) if any(private.values()) else set()
    problems = []
    for tag, keys in private.items():
        released = sorted(keys - known)
        if released:
            rule = (
                f"must not be public, because the row was private in {tag}: build with `previous` and "
                "`previous_holdout`, or publish with `retire_holdout` if that holdout is retired"
            )
            count = count_text(len(released), "such row")
            problems.append(Problem(public[released[0]], released[0], "split", rule, count))
    return problems


def _references(splits: object) -> str:
    """Return "public" if any split has public references, else "private"."""
    entries = splits.values() if isinstance(splits, dict) else ()
    is_public = any(isinstance(entry, dict) and entry.get("references") == "public" for entry in entries)
    return "public" if is_public else "private"


def check_parent(repository: Repository, head: str | None, parent: str | None) -> None:
    """Raise ParentMovedError if `parent` is given and `main` is at another commit."""
    if parent is not None and (head is None or not head.startswith(parent)):
        raise ParentMovedError(f"`main` of {repository.url} must be at {parent}, got {head}. Nothing was published")


def difference(publication: Publication, there: Mapping[str, RemoteFile]) -> tuple[list[str], list[str]]:
    """Return (files to send, files to remove), after which the repository's files `there` equal the folder's."""
    changed = [
        name
        for name, sha256 in publication.files.items()
        if name not in there or not there[name].holds(publication.folder / name, sha256)
    ]
    return changed, sorted(set(there) - set(publication.files) - {KEPT})


def check_sent(publication: Publication, sent: Mapping[str, str]) -> None:
    """Raise an error if a file changed after its check; `sent` is a dict from path to sha256."""
    altered = sorted(name for name, sha256 in sent.items() if sha256 != publication.files[name])
    if altered:
        rule = "must not change during publication"
        raise _refused(publication, [Problem(name, None, "sha256", rule, "another") for name in altered])


def check_arrived(repository: Repository, publication: Publication, commit: str) -> None:
    """Raise HubError unless the commit has exactly the folder's files, with the requested visibility and gate."""
    changed, removed = difference(publication, repository.files(commit))
    if changed or removed:
        raise HubError(
            f"{repository.url} serves at {commit[:8]} other files than were sent "
            f"({', '.join([*changed, *removed][:3])}). The commit is not tagged; check the repository "
            "before you try again"
        )
    state = _seen(repository)
    must = "private" if publication.private else "public"
    if state.private != publication.private:
        rule = f"{must}, as requested"
    elif publication.gated and not state.gated:
        rule = "gated, as the card says"
    else:
        return
    raise HubError(
        f"{repository.url} must be {rule}, but this changed during the upload. {commit[:8]} is on `main`, "
        "but not tagged; check the repository's settings, then run the same command again"
    )


GROUP_BYTES = 256 << 20
"""Largest total size of the large files that are sent together, in bytes.

After an interruption at most one such group is sent again.
"""


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The published version of a dataset folder, and its address on the Hub.

    Attributes
    ----------
    commit, tag : id of the commit with the folder's files, and name of its tag
    url : address of the page of this version
    n_uploaded, n_unchanged, n_removed : numbers of files that were sent, that the repository already had, and that were
        removed because the folder lacks them
    """

    repo_id: str
    commit: str
    tag: str
    url: str
    n_uploaded: int
    n_unchanged: int
    n_removed: int = 0

    @property
    def load_line(self) -> str:
        """The Python call that loads this version."""
        return f'load_dataset("{self.repo_id}", revision="{self.tag}")'


def publish(
    folder: Path,
    repo_id: str,
    *,
    private: bool,
    tag: str | None = None,
    token: str | None = None,
    holdout: Path | None = None,
    retire_holdout: bool = False,
    endpoint: str | None = None,
    message: str | None = None,
    parent: str | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
) -> PublishResult:
    """Check a public dataset folder, and publish it to the Hub.

    Parameters
    ----------
    folder, repo_id, private, tag, holdout, retire_holdout : see :func:`reveal_bench.dataset.hub_checks.prepare`
    token : token of an account that may write; by default from HF_TOKEN or ``hf auth login``
    endpoint : address of the Hub
    message : first line of the commit
    parent : commit at which `main` must be; by default its commit at the beginning of the upload
    progress : called with (what, done, total) for checks and files

    Raises
    ------
    PublishRefusedError
        With all reasons why the folder or the repository is unsuitable. Nothing was changed.
    ParentMovedError
        If somebody else changed the repository during the upload. Nothing was published.
    HubError
        If the Hub refused a request or did not answer.
    """
    publication = prepare(
        folder, repo_id, private=private, tag=tag, holdout=holdout, retire_holdout=retire_holdout, progress=progress
    )
    return send(
        publication,
        token=token,
        endpoint=endpoint,
        message=message,
        parent=parent,
        group_bytes=group_bytes,
        progress=progress,
    )


def publish_holdout(
    folder: Path,
    repo_id: str,
    *,
    token: str,
    tag: str | None = None,
    public_token: str | None = None,
    endpoint: str | None = None,
    message: str | None = None,
    parent: str | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
) -> PublishResult:
    """Check the private folder of a holdout and publish it to a private repository, which is created if it is missing.

    Parameters
    ----------
    token : token with access to this repository only; must differ from `public_token` and from the token of HF_TOKEN or
        ``hf auth login``
    public_token : token for publishing public folders, if it is not the token of HF_TOKEN or ``hf auth login``
    folder, repo_id, tag, endpoint, message, parent, progress : as in :func:`publish`

    Raises
    ------
    PublishRefusedError, ParentMovedError, HubError
        As in :func:`publish`.
    ValueError
        If `token` is empty or is the token for public repositories.
    """
    check_holdout_token(token, public_token)
    publication = prepare_holdout(folder, repo_id, tag=tag, progress=progress)
    return send(
        publication,
        token=token,
        endpoint=endpoint,
        message=message,
        parent=parent,
        group_bytes=group_bytes,
        progress=progress,
    )


def find_token(token: str | None = None) -> str:
    """Return `token`, by default the token of HF_TOKEN or ``hf auth login``.

    Raises
    ------
    HubError
        If no token is set.
    """
    from huggingface_hub import get_token

    secret = token or get_token()
    if not secret:
        raise HubError("a token is needed to publish: set HF_TOKEN, or log in with `hf auth login`")
    return secret


def check_holdout_token(token: str, public_token: str | None = None) -> None:
    """Raise ValueError if `token` is empty or is also the token for public repositories."""
    from huggingface_hub import get_token

    if not token:
        raise ArgumentError("token", "must be given for a holdout; no stored token is used")
    for other in (public_token, get_token()):
        if other and hmac.compare_digest(token.encode(), other.encode()):
            raise ValueError(
                "`token` of a holdout must differ from the token for public repositories, got the same token"
            )


def check_there(publication: Publication, *, token: str | None = None) -> None:
    """Raise the errors that :func:`send` would raise about an existing repository, without changing anything."""
    read_remote(Repository(publication.repo_id, token=find_token(token)), publication)


def send(
    publication: Publication,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    message: str | None = None,
    parent: str | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
) -> PublishResult:
    """Publish a folder that :func:`prepare` or :func:`prepare_holdout` checked (stages 2 to 5 of the module docstring).

    Raises
    ------
    PublishRefusedError, ParentMovedError, HubError
        As in :func:`publish`.
    """
    if publication.is_holdout:
        check_holdout_token(token or "")
    repository = Repository(publication.repo_id, token=find_token(token), endpoint=endpoint)
    state, there = read_remote(repository, publication)
    if state is None:
        check_parent(repository, None, parent)
        repository.create(private=publication.private)
        state = _seen(repository)
        _, there = read_remote(repository, publication)
    tagged = state.tags.get(
        publication.tag
    )  # the tag names exactly this content, otherwise the check would have failed
    changed, removed = difference(publication, there)
    head = state.head
    is_new = tagged is None and (head is None or bool(changed or removed))
    if is_new:
        check_parent(repository, head, parent)
    gate(repository, publication, state)
    if tagged is not None:
        return _published(repository, publication, tagged)
    if head is not None and not is_new:
        repository.tag(publication.tag, head)
        return _published(repository, publication, head)
    additions = repository.upload(
        {name: publication.folder / name for name in changed}, group_bytes=group_bytes, progress=progress
    )
    check_sent(publication, {addition.path_in_repo: addition.upload_info.sha256.hex() for addition in additions})
    state = _seen(repository)  # an upload may take hours, during which the visibility may have changed
    check_visibility(repository, publication, state)
    gate(repository, publication, state)
    text = message or f"{publication.info.benchmark} {publication.info.version}"
    commit = repository.commit(additions, removed, parent=head, message=text)
    check_arrived(repository, publication, commit)
    repository.tag(publication.tag, commit)
    return _published(repository, publication, commit, n_uploaded=len(changed), n_removed=len(removed))


def _published(
    repository: Repository, publication: Publication, commit: str, *, n_uploaded: int = 0, n_removed: int = 0
) -> PublishResult:
    return PublishResult(
        repo_id=publication.repo_id,
        commit=commit,
        tag=publication.tag,
        url=f"{repository.url}/tree/{publication.tag}",
        n_uploaded=n_uploaded,
        n_unchanged=len(publication.files) - n_uploaded,
        n_removed=n_removed,
    )
