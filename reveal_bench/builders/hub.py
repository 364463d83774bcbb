"""Publishes a dataset folder to the Hugging Face Hub: one commit, one tag.

Stages of :func:`publish`
-------------------------
1. every check of :mod:`reveal_bench.builders.hub_checks`, without network;
2. the repository: it is made if it is missing; an existing one must have the visibility asked for, and hold nothing or
   an earlier version of the same benchmark;
3. one commit of what changed, card included, above the commit that was read in 2; files that are no longer in the
   folder go, ``.gitattributes`` stays;
4. what the Hub now serves is compared with what was checked, file by file;
5. the tag.

A tag never moves. If the tag names the folder's content, nothing is done; if it names another, that is an error. If
`main` has the content already, as after an interruption between 3 and 5, only the tag is made. So the same command
again is always right.

`HF_ENDPOINT` chooses the Hub (`huggingface_hub` reads it when it is imported); `endpoint` overrides it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from pathlib import Path

from reveal_bench.builders.hub_checks import Progress, Publication, PublishRefusedError, prepare, prepare_holdout
from reveal_bench.builders.hub_compare import (
    check_arrived,
    check_parent,
    check_repository,
    check_sent,
    difference,
    opened,
)
from reveal_bench.builders.hub_errors import HubError, ParentMovedError, hub_errors
from reveal_bench.builders.hub_repository import Repository

__all__ = [
    "HubError",
    "ParentMovedError",
    "Publication",
    "PublishRefusedError",
    "Published",
    "check_holdout_token",
    "find_token",
    "hub_errors",
    "prepare",
    "prepare_holdout",
    "publish",
    "publish_holdout",
    "send",
]

GROUP_BYTES = 256 << 20
"""Large files are sent in groups of at most this size: what an interruption can cost."""


@dataclass(frozen=True, slots=True)
class Published:
    """What was published, and where.

    Attributes
    ----------
    commit, tag : the commit that holds the folder, and the tag that names it
    url : page of that version
    n_uploaded, n_unchanged, n_removed : files of the folder that the commit changed and that it found there already,
        and files of the version before that are no longer in the folder
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
        """How anybody loads this version."""
        return f'load_dataset("{self.repo_id}", revision="{self.tag}")'


def publish(
    folder: Path,
    repo_id: str,
    *,
    private: bool,
    tag: str | None = None,
    token: str | None = None,
    holdout: Path | None = None,
    endpoint: str | None = None,
    message: str | None = None,
    parent: str | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
) -> Published:
    """Check a public dataset folder and publish it.

    Parameters
    ----------
    folder, repo_id, private, tag, holdout : see :func:`reveal_bench.builders.hub_checks.prepare`
    token : of an account that may write; by default that of HF_TOKEN or of ``hf auth login``
    endpoint : address of the Hub
    message : first line of the commit
    parent : commit that `main` must be at; by default where it is when the upload begins
    progress : called with (what, done, total) for checks and files

    Raises
    ------
    PublishRefusedError
        With every reason why the folder, or the repository, is not fit. Nothing was changed.
    ParentMovedError
        If somebody else changed the repository meanwhile. Nothing was published.
    HubError
        If the Hub refused or did not answer.
    """
    publication = prepare(folder, repo_id, private=private, tag=tag, holdout=holdout, progress=progress)
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
) -> Published:
    """Check the private folder of a holdout and publish it to a private repository, which is made if missing.

    Parameters
    ----------
    token : for this repository alone: must differ from `public_token`, and from that of HF_TOKEN or ``hf auth login``
    public_token : the token that public folders are published with, if it is another than those
    folder, repo_id, tag, endpoint, message, parent, progress : as in :func:`publish`

    Raises
    ------
    PublishRefusedError, ParentMovedError, HubError
        As in :func:`publish`.
    ValueError
        If `token` is empty or is the public one.
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
    """`token` if it is given, else that of HF_TOKEN or of ``hf auth login``.

    Raises
    ------
    HubError
        If there is none.
    """
    from huggingface_hub import get_token

    found = token or get_token()
    if not found:
        raise HubError("there is no token to publish with: set HF_TOKEN, or log in with `hf auth login`")
    return found


def check_holdout_token(token: str, public_token: str | None = None) -> None:
    """Raise ValueError unless `token` is one of its own, used for the holdout alone."""
    from huggingface_hub import get_token

    if not token:
        raise ValueError("`token` must be given for a holdout: none is looked up")
    for other in (public_token, get_token()):
        if other and hmac.compare_digest(token.encode(), other.encode()):
            raise ValueError("`token` of a holdout must be one of its own, got the token of the public repositories")


def send(
    publication: Publication,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    message: str | None = None,
    parent: str | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
) -> Published:
    """Publish what :func:`prepare` or :func:`prepare_holdout` checked; stages 2 to 5 of the module's list.

    Raises
    ------
    PublishRefusedError, ParentMovedError, HubError
        As in :func:`publish`.
    """
    if publication.is_holdout:
        check_holdout_token(token or "")
    repository = Repository(publication.repo_id, token=find_token(token), endpoint=endpoint)
    state = opened(repository, publication)
    there = {} if state.head is None else repository.files(state.head)
    check_repository(repository, publication, state, there)
    tagged = state.tags.get(publication.tag)
    if tagged is not None:  # and names this very content, or the check would have refused
        return _published(repository, publication, tagged)
    changed, removed = difference(publication, there)
    commit = state.head
    if changed or removed or commit is None:
        check_parent(repository, state, parent)
        additions = repository.upload(
            {name: publication.folder / name for name in changed}, group_bytes=group_bytes, progress=progress
        )
        check_sent(publication, {addition.path_in_repo: addition.upload_info.sha256.hex() for addition in additions})
        opened(repository, publication)  # an upload may take hours: is it still as private as it was?
        text = message or f"{publication.info.benchmark} {publication.info.version}"
        commit = repository.commit(additions, removed, parent=state.head, message=text)
        check_arrived(repository, publication, commit)
    repository.tag(publication.tag, commit)
    return _published(repository, publication, commit, n_uploaded=len(changed), n_removed=len(removed))


def _published(
    repository: Repository, publication: Publication, commit: str, *, n_uploaded: int = 0, n_removed: int = 0
) -> Published:
    return Published(
        repo_id=publication.repo_id,
        commit=commit,
        tag=publication.tag,
        url=f"{repository.url}/tree/{publication.tag}",
        n_uploaded=n_uploaded,
        n_unchanged=len(publication.files) - n_uploaded,
        n_removed=n_removed,
    )
