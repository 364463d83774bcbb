"""One dataset repository on a Hub. No other module talks to a Hub.

`huggingface_hub` 2 has no upload of a large folder that ends in one commit: its ``upload_folder`` commits in parts, so
half a version could be read, and the Hub merges pull requests but no branches, without a check of the parent. So large
files are sent ahead, in groups, as objects that no commit names yet; then one commit names them all. Objects that
arrived stay, so the same command again sends only the missing ones.

Errors of a Hub become sentences for people: exceptions of `huggingface_hub` and `datasets` turn into a
:class:`HubError`. The original errors are not chained to it: they may hold signed addresses of uploads. No message
holds a token.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench import __version__
from reveal_bench.files import FOLDER_INFO

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

    from reveal_bench.dataset.hub_checks import Progress


class HubError(OSError):
    """The Hub refused or did not answer; the message says what to do."""


class ParentMovedError(HubError):
    """The repository was changed in the meantime by another user; nothing was published."""


@contextmanager
def hub_errors(repo_id: str, endpoint: str | None = None) -> Iterator[None]:
    """Turn what `huggingface_hub` or ``datasets.load_dataset`` raises in the block into a :class:`HubError`.

    Errors that do not come from a Hub pass unchanged.
    """
    try:
        yield
    except HubError:
        raise
    except Exception as error:
        from huggingface_hub import constants

        explained = _explained(error, f"{endpoint or constants.ENDPOINT}/datasets/{repo_id}")
        if explained is None:
            raise
        raise explained from None


def _explained(error: BaseException, url: str) -> HubError | None:
    """Return the error as a sentence, or None if it does not come from a Hub.

    The error's causes are also checked, because uploads in threads wrap the original error.
    """
    seen: BaseException | None = error
    while seen is not None:
        names = {cls.__name__ for cls in type(seen).__mro__}  # by name: `datasets` is slow to import
        response = getattr(seen, "response", None)
        if "DatasetNotFoundError" in names:
            return HubError(_not_found(str(seen), url))
        if response is not None:
            kind = ParentMovedError if response.status_code == 412 else HubError
            return kind(_answered(names, response.status_code, getattr(seen, "server_message", None), url))
        for name, text in _UNREACHED.items():
            if name in names:
                return HubError(text.format(url=url, name=type(seen).__name__))
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return None


_UNREACHED = {
    "OfflineModeIsEnabled": "{url} was not asked: HF_HUB_OFFLINE is set",
    "LocalTokenNotFoundError": "{url} needs a token: set HF_TOKEN, or log in with `hf auth login`",
    "TransportError": "{url} did not answer, or stopped in the middle ({name}): run the same command again",
    "ConnectionError": "{url} did not answer, or stopped in the middle ({name}): run the same command again",
}

_UNSEEN = "{url} does not exist, or it is private and the token given (if any) may not read it"
_GATED = "{url} is gated: ask for access on its page, and use a token of the account that has it"

_STATUS = {
    401: "the token is missing or not valid for {url}",
    403: "the token may not do this with {url}",
    409: "{url} already exists, or is being changed: it may be private and closed to this token",
    412: "someone else changed {url} meanwhile: nothing was published; run the same command again",
    413: "{url} does not accept requests of this size: write smaller shards",
    429: "{url} accepts no further requests for now: wait, then run the same command again",
}


def _not_found(text: str, url: str) -> str:
    if "is a gated dataset" in text:
        return _GATED.format(url=url)
    if text.startswith("Revision"):
        return f"{url} has no such revision"
    return _UNSEEN.format(url=url)


def _answered(names: set[str], status: int, reason: str | None, url: str) -> str:
    if "GatedRepoError" in names:
        text = _GATED
    elif "RevisionNotFoundError" in names:
        text = "{url} has no such revision"
    elif "RepositoryNotFoundError" in names:
        text = _UNSEEN
    else:
        again = ": run the same command again" if status >= 500 else ""
        text = _STATUS.get(status, "{url} answered {status}" + again)
    note = f" ({' '.join(reason.split())[:200]})" if reason and text is not _UNSEEN else ""
    return text.format(url=url, status=status) + note


GROUP_FILES = 50


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file at a commit: its size, and its sha256 (large files) or git's hash (small ones)."""

    size: int
    sha256: str | None
    git_sha1: str

    def holds(self, path: Path, sha256: str) -> bool:
        """Return True if this file has the same bytes as the file at `path`, whose hash is `sha256`."""
        if self.size != path.stat().st_size:
            return False
        return self.sha256 == sha256 if self.sha256 is not None else self.git_sha1 == _git_sha1(path)


@dataclass(frozen=True, slots=True)
class State:
    """The present state of a repository: visibility, the commit of `main` (None before the first), tag -> commit, and
    whether users must ask for access."""

    private: bool
    head: str | None
    tags: Mapping[str, str]
    gated: bool


class Repository:
    """A dataset repository; if `token` is None, it is read as the public sees it."""

    def __init__(self, repo_id: str, *, token: str | None, endpoint: str | None = None) -> None:
        from huggingface_hub import HfApi

        self.repo_id = repo_id
        self._api = HfApi(
            endpoint=endpoint,
            token=token if token is not None else False,
            library_name="reveal-bench",
            library_version=__version__,
        )
        self.endpoint: str = self._api.endpoint

    @property
    def url(self) -> str:
        """Address of the repository's page."""
        return f"{self.endpoint}/datasets/{self.repo_id}"

    def state(self) -> State | None:
        """Return the present state; None if the repository is missing or this token may not see it."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        with self._errors():
            try:
                info = self._api.repo_info(self.repo_id, repo_type="dataset")
                refs = self._api.list_repo_refs(self.repo_id, repo_type="dataset")
            except GatedRepoError:
                raise
            except RepositoryNotFoundError:
                return None
        heads = {branch.name: branch.target_commit for branch in refs.branches}
        tags = {tag.name: tag.target_commit for tag in refs.tags}
        return State(bool(info.private), heads.get("main"), tags, bool(info.gated))

    def create(self, *, private: bool) -> None:
        """Create the empty repository."""
        with self._errors():
            self._api.create_repo(self.repo_id, repo_type="dataset", private=private)

    def gate(self) -> None:
        """Require users to ask for access, which a maintainer grants."""
        with self._errors():
            self._api.update_repo_settings(self.repo_id, repo_type="dataset", gated="manual")

    def files(self, revision: str) -> dict[str, RemoteFile]:
        """Return path -> file, for every file at a commit."""
        from huggingface_hub.hf_api import RepoFile

        with self._errors():
            entries = list(
                self._api.list_repo_tree(self.repo_id, recursive=True, revision=revision, repo_type="dataset")
            )
        return {
            entry.path: RemoteFile(entry.size, None if entry.lfs is None else entry.lfs.sha256, entry.blob_id)
            for entry in entries
            if isinstance(entry, RepoFile)
        }

    def read_info(self, revision: str) -> dict[str, Any]:
        """``manifest/benchmark.json`` at a commit; empty if it cannot be read as JSON."""
        with self._errors(), tempfile.TemporaryDirectory() as place, _no_progress_bars():
            path = self._api.hf_hub_download(
                self.repo_id, FOLDER_INFO, repo_type="dataset", revision=revision, local_dir=place
            )
            try:
                document = json.loads(Path(path).read_text(encoding="utf-8"))
            except ValueError:
                return {}
        return document if isinstance(document, dict) else {}

    def keys(self, revision: str, references: str) -> set[str]:
        """Return ids that the manifests at a commit name in splits whose references are "public" or "private"."""
        import pyarrow.parquet as pq

        splits = self.read_info(revision).get("splits")
        names = [
            split
            for split, entry in (splits.items() if isinstance(splits, dict) else ())
            if isinstance(entry, dict) and entry.get("references") == references
        ]
        keys: set[str] = set()
        with self._errors(), tempfile.TemporaryDirectory() as place, _no_progress_bars():
            for split in names:
                path = self._api.hf_hub_download(
                    self.repo_id, f"manifest/{split}.parquet", repo_type="dataset", revision=revision, local_dir=place
                )
                keys.update(pq.read_table(path).column(0).to_pylist())
        return keys

    def upload(
        self, paths: Mapping[str, Path], *, group_bytes: int, progress: Progress | None
    ) -> list[CommitOperationAdd]:
        """Send the large files that the Hub lacks, group by group.

        Return the operations that add all `paths` in a commit.
        """
        from huggingface_hub import CommitOperationAdd

        additions = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in paths.items()]
        n_done = 0
        with self._errors(), _no_progress_bars():
            for group in _groups(additions, group_bytes):
                self._api.preupload_lfs_files(self.repo_id, group, repo_type="dataset", free_memory=False)
                n_done += len(group)
                if progress is not None:
                    progress("files", n_done, len(additions))
        return additions

    def commit(
        self, additions: Iterable[CommitOperationAdd], removals: Iterable[str], *, parent: str | None, message: str
    ) -> str:
        """Make one commit on `main` above `parent`; return its id.

        Raises
        ------
        ParentMovedError
            If `main` has moved from `parent`.
        """
        from huggingface_hub import CommitOperationDelete

        deletions = [CommitOperationDelete(path_in_repo=name, is_folder=False) for name in removals]
        with self._errors(), _no_progress_bars():
            done = self._api.create_commit(
                self.repo_id,
                [*additions, *deletions],
                commit_message=message,
                repo_type="dataset",
                parent_commit=parent,
            )
        return str(done.oid)

    def tag(self, tag: str, commit: str) -> None:
        """Tag a commit; it is an error if the tag already names another commit."""
        from huggingface_hub.errors import HfHubHTTPError

        with self._errors():
            try:
                self._api.create_tag(self.repo_id, tag=tag, revision=commit, repo_type="dataset")
            except HfHubHTTPError as error:
                if error.response.status_code != 409:
                    raise
                state = self.state()
                if state is None or state.tags.get(tag) != commit:
                    raise HubError(f"someone else made the tag {tag} of {self.url} meanwhile") from None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with hub_errors(self.repo_id, self.endpoint):
            yield


def _groups(additions: list[CommitOperationAdd], group_bytes: int) -> Iterator[list[CommitOperationAdd]]:
    """Yield groups of files of at most `group_bytes` in total; a larger file is a group of its own."""
    group: list[CommitOperationAdd] = []
    size = 0
    for addition in additions:
        if group and (size + addition.upload_info.size > group_bytes or len(group) == GROUP_FILES):
            yield group
            group, size = [], 0
        group.append(addition)
        size += addition.upload_info.size
    if group:
        yield group


def _git_sha1(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Silence the library's own progress bars, because the caller has one."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    was_quiet = are_progress_bars_disabled()
    if not was_quiet:
        disable_progress_bars()
    try:
        yield
    finally:
        if not was_quiet:
            enable_progress_bars()
