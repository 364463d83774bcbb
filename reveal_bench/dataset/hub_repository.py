"""Access to one dataset repository on a Hub. No other module of this package communicates with a Hub.

`huggingface_hub` 2 cannot upload a large folder as one commit: its ``upload_folder`` makes several commits, between
which users could read an incomplete version. Pull requests do not help, because the Hub merges them without checking
the parent commit. Therefore large files are first sent in groups, as objects that no commit refers to, and then one
commit refers to all of them. The Hub keeps these objects, so a repeated command sends only the missing objects.

Exceptions of `huggingface_hub` and `datasets` become a :class:`HubError` with an understandable message. The original
exceptions are not chained to the HubError, because they may contain signed addresses of uploads. No message contains a
token.
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
    """The Hub refused a request or did not answer; the message says what to do."""


class ParentMovedError(HubError):
    """Another user changed the repository during the publication; nothing was published."""


@contextmanager
def hub_errors(repo_id: str, endpoint: str | None = None) -> Iterator[None]:
    """Turn exceptions of `huggingface_hub` or ``datasets.load_dataset`` in the block into a :class:`HubError`.

    Exceptions that do not come from a Hub are raised unchanged.
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
    """Return a HubError that explains the exception, or None if the exception does not come from a Hub.

    The causes of the exception are also checked, because uploads in threads wrap the original exception.
    """
    seen: BaseException | None = error
    while seen is not None:
        names = {
            cls.__name__ for cls in type(seen).__mro__
        }  # names instead of classes, because `datasets` is slow to import
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
    "OfflineModeIsEnabled": "{url} was not contacted, because HF_HUB_OFFLINE is set",
    "LocalTokenNotFoundError": "{url} needs a token: set HF_TOKEN, or log in with `hf auth login`",
    "TransportError": "{url} did not answer, or the connection broke ({name}): run the same command again",
    "ConnectionError": "{url} did not answer, or the connection broke ({name}): run the same command again",
}

_UNSEEN = "{url} does not exist, or it is private and your token (if any) may not read it"
_GATED = "{url} is gated: request access on its page, and use a token of the account with access"

_STATUS = {
    401: "the token is missing or not valid for {url}",
    403: "the token is not authorised to do this with {url}",
    409: "{url} already exists (perhaps as a private repository that this token may not read), or is being changed",
    412: "someone else changed {url} during the publication. Nothing was published; run the same command again",
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
    """A file at a commit: its size, its sha256 (only of a large file), and git's hash."""

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
    """The current state of a repository.

    `head` is the commit of `main`, `tags` a dict from tag to commit; `gated` is True if users must request access.
    """

    private: bool
    head: str | None
    tags: Mapping[str, str]
    gated: bool


class Repository:
    """A dataset repository; without a `token`, only what the public can read is read."""

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
        """Return the current state; None if the repository is missing or this token may not read it."""
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
        """Require users to request access, which a maintainer grants."""
        with self._errors():
            self._api.update_repo_settings(self.repo_id, repo_type="dataset", gated="manual")

    def files(self, revision: str) -> dict[str, RemoteFile]:
        """Return a dict from path to file, for every file at a commit."""
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
        """Return the content of ``manifest/benchmark.json`` at a commit; {} if it is not a JSON object."""
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
        """Return the ids of rows whose references are "public" or "private", from the manifests at a commit."""
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
        """Send the large files that the Hub lacks, in groups.

        Return the operations with which :meth:`commit` adds all `paths`.
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
        """Make a commit on `main` on top of `parent`; return the id of the commit.

        Raises
        ------
        ParentMovedError
            If `main` is not at `parent`.
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
        """Tag a commit; raise HubError if another commit has the tag."""
        from huggingface_hub.errors import HfHubHTTPError

        with self._errors():
            try:
                self._api.create_tag(self.repo_id, tag=tag, revision=commit, repo_type="dataset")
            except HfHubHTTPError as error:
                if error.response.status_code != 409:
                    raise
                state = self.state()
                if state is None or state.tags.get(tag) != commit:
                    raise HubError(f"someone else made the tag {tag} of {self.url} during the publication") from None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with hub_errors(self.repo_id, self.endpoint):
            yield


def _groups(additions: list[CommitOperationAdd], group_bytes: int) -> Iterator[list[CommitOperationAdd]]:
    """Yield groups of files of at most `group_bytes` in total; a larger file forms a group."""
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
    """Disable the library's progress bars, because the caller has its own."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    was_quiet = are_progress_bars_disabled()
    if not was_quiet:
        disable_progress_bars()
    try:
        yield
    finally:
        if not was_quiet:
            enable_progress_bars()
