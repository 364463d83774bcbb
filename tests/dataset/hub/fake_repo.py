"""State of the loopback Hub: accounts, dataset repositories, commits, tags, large objects. No HTTP here.

Hashes are the real ones (git's for small files, sha256 for large ones); a commit's id is a hash of its content and
its parent. As on the Hub, a new repository has one commit, with ``.gitattributes``, and files named there
(``*.parquet``) are large objects, stored once by their sha256.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from dataclasses import dataclass, field

GITATTRIBUTES = b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"


class RefusalError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass(frozen=True)
class Account:
    """The rights of a token: a name, the namespaces it may write to, and the only repositories it sees, if any."""

    name: str
    namespaces: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None

    def owns(self, repo_id: str) -> bool:
        return repo_id.split("/")[0] in (self.name, *self.namespaces) and (self.only is None or repo_id in self.only)


@dataclass(frozen=True)
class File:
    """A file at a commit; a large one is in the object store, by its sha256."""

    size: int
    git_sha1: str
    sha256: str | None = None
    data: bytes = b""

    @property
    def etag(self) -> str:
        return self.sha256 or self.git_sha1


def small_file(data: bytes) -> File:
    return File(len(data), hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(), data=data)


def large_file(sha256: str, size: int) -> File:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    return File(size, small_file(pointer).git_sha1, sha256)


@dataclass(frozen=True)
class Commit:
    parent: str | None
    message: str
    files: dict[str, File]

    @property
    def oid(self) -> str:
        tree = sorted((name, file.etag) for name, file in self.files.items())
        return hashlib.sha1(repr((self.parent, self.message, tree)).encode()).hexdigest()


@dataclass
class Repo:
    """A dataset repository; `granted` names the accounts with access to a gated one."""

    repo_id: str
    private: bool = False
    gated: bool = False
    granted: set[str] = field(default_factory=set)
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add(Commit(None, "initial commit", {".gitattributes": small_file(GITATTRIBUTES)}), "main")

    @property
    def head(self) -> str:
        return self.branches["main"]

    def add(self, commit: Commit, branch: str) -> str:
        self.commits[commit.oid] = commit
        self.branches[branch] = commit.oid
        return commit.oid

    def change(self, name: str, data: bytes) -> str:
        """A commit on `main` by somebody else."""
        files = {**self.commits[self.head].files, name: small_file(data)}
        return self.add(Commit(self.head, f"change {name}", files), "main")

    def resolve(self, revision: str) -> str:
        """A branch, tag or commit as the id of a commit."""
        revision = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        if oid not in self.commits:
            raise RefusalError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return oid

    def file(self, revision: str, name: str) -> File:
        files = self.commits[self.resolve(revision)].files
        if name not in files:
            raise RefusalError(404, "Entry not found", "EntryNotFound")
        return files[name]


@dataclass
class Store:
    """Everything the Hub knows, with a lock: requests come in threads."""

    accounts: dict[str, Account] = field(default_factory=dict)
    repos: dict[str, Repo] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    received: Counter[str] = field(default_factory=Counter)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def account(self, token: str | None) -> Account | None:
        if token is None:
            return None
        if token not in self.accounts:
            raise RefusalError(401, "Invalid credentials in Authorization header")
        return self.accounts[token]

    def readable(self, repo_id: str, account: Account | None) -> Repo:
        """Return the repository; a private one is treated as if it did not exist."""
        repo = self.repos.get(repo_id)
        if repo is None or (repo.private and not (account and account.owns(repo_id))):
            # the real Hub, too, answers 401 where nobody is logged in
            raise RefusalError(401 if account is None else 404, "Repository not found", "RepoNotFound")
        return repo

    def downloadable(self, repo_id: str, account: Account | None) -> Repo:
        repo = self.readable(repo_id, account)
        if repo.gated and account is None:
            raise RefusalError(
                401, f"Access to dataset {repo_id} is restricted. You must be authenticated.", "GatedRepo"
            )
        if repo.gated and not (account and (account.owns(repo_id) or account.name in repo.granted)):
            raise RefusalError(403, f"Access to dataset {repo_id} is restricted. Ask for access.", "GatedRepo")
        return repo

    def writable(self, repo_id: str, account: Account | None) -> Repo:
        repo = self.readable(repo_id, account)
        if account is None or not account.owns(repo_id):
            raise RefusalError(403, "You don't have the rights to write to this repository")
        return repo

    def put_object(self, sha256: str, data: bytes) -> None:
        if hashlib.sha256(data).hexdigest() != sha256:
            raise RefusalError(400, "The object has another sha256")
        with self.lock:
            self.objects[sha256] = data
            self.received[sha256] += 1

    def content(self, file: File) -> bytes:
        return file.data if file.sha256 is None else self.objects[file.sha256]

    def text_of(self, repo_id: str, revision: str, name: str) -> str:
        return self.content(self.repos[repo_id].file(revision, name)).decode()
