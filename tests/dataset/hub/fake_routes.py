"""Routes of the loopback Hub, as the clients `huggingface_hub` 2.4 and `datasets` 5.2 call them.

A route is (method, pattern, function); the function gets the store, a :class:`Call` and the groups of the pattern and
returns an :class:`Answer`. Requests for objects carry a signature instead of a token, as on the real Hub.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import yaml

from tests.dataset.hub.fake_repo import Account, Commit, File, RefusalError, Repo, Store, large_file, small_file

SIGNATURE = "signed=by-the-hub"


@dataclass(frozen=True)
class Call:
    """A request that was read to its end."""

    account: Account | None
    body: bytes
    query: Mapping[str, str]
    endpoint: str
    storage: str

    def json(self) -> dict:
        return json.loads(self.body or b"{}")


@dataclass(frozen=True)
class Answer:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Route = Callable[..., Answer]
ROUTES: list[tuple[str, re.Pattern[str], Route]] = []
_REPO = r"/api/datasets/(?P<repo_id>[^/]+/[^/]+)"


def route(methods: str, pattern: str) -> Callable[[Route], Route]:
    def add(function: Route) -> Route:
        ROUTES.extend((method, re.compile(pattern), function) for method in methods.split())
        return function

    return add


def answer(document: object, status: int = 200) -> Answer:
    return Answer(json.dumps(document).encode(), status, {"Content-Type": "application/json"})


@route("GET", r"/api/whoami-v2")
def whoami(_: Store, call: Call) -> Answer:
    if call.account is None:
        raise RefusalError(401, "Invalid username or password.")
    orgs = [{"name": name} for name in call.account.namespaces]
    return answer({"type": "user", "name": call.account.name, "orgs": orgs, "auth": {}})


@route("POST", r"/api/validate-yaml")
def validate_yaml(_: Store, call: Call) -> Answer:
    parts = call.json()["content"].split("---\n", 2)
    try:
        block = yaml.safe_load(parts[1])
    except (yaml.YAMLError, IndexError) as error:
        return answer({"errors": [{"message": str(error)}], "warnings": []}, 400)
    return answer({"errors": [], "warnings": [] if block else [{"message": "empty or missing yaml metadata"}]})


@route("POST", r"/api/repos/create")
def create(store: Store, call: Call) -> Answer:
    asked = call.json()
    repo_id = f"{asked.get('organization') or (call.account and call.account.name)}/{asked['name']}"
    if call.account is None or not call.account.owns(repo_id):
        raise RefusalError(403, "You don't have the rights to create a dataset under this namespace")
    if repo_id in store.repos:
        raise RefusalError(409, "You already created this dataset repo")
    store.repos[repo_id] = Repo(repo_id, private=asked.get("visibility") == "private" or bool(asked.get("private")))
    return answer({"url": f"{call.endpoint}/datasets/{repo_id}", "name": repo_id})


@route("PUT", _REPO + r"/settings")
def settings(store: Store, call: Call, repo_id: str) -> Answer:
    repo, asked = store.writable(repo_id, call.account), call.json()
    if "visibility" in asked:
        repo.private = asked["visibility"] == "private"
    if "gated" in asked:
        repo.gated = bool(asked["gated"])
    return answer({})


@route("GET", _REPO + r"/refs")
def refs(store: Store, call: Call, repo_id: str) -> Answer:
    repo = store.readable(repo_id, call.account)
    named = {"branches": ("refs/heads/", repo.branches), "tags": ("refs/tags/", repo.tags)}
    lists = {
        kind: [{"name": name, "ref": prefix + name, "targetCommit": oid} for name, oid in refs.items()]
        for kind, (prefix, refs) in named.items()
    }
    return answer({**lists, "converts": [], "pullRequests": []})


@route("GET", _REPO + r"/tree/(?P<revision>[^/]+)(?:/(?P<folder>.+))?")
def tree(store: Store, call: Call, repo_id: str, revision: str, folder: str | None) -> Answer:
    repo = store.readable(repo_id, call.account)
    files = repo.commits[repo.resolve(revision)].files
    prefix = f"{folder}/" if folder else ""
    recursive = call.query.get("recursive", "").lower() in ("true", "1")
    entries: dict[str, dict] = {}
    for name, file in sorted(files.items()):
        if not name.startswith(prefix):
            continue
        parts = name.removeprefix(prefix).split("/")
        for depth in range(1, len(parts) if recursive else min(2, len(parts))):
            path = prefix + "/".join(parts[:depth])
            entries[path] = {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}
        if recursive or len(parts) == 1:
            entries[name] = entry(name, file)
    if folder and not entries:
        raise RefusalError(404, f"{folder} does not exist on {revision}", "EntryNotFound")
    return answer(list(entries.values()))


def entry(name: str, file: File) -> dict:
    entry: dict = {"type": "file", "path": name, "size": file.size, "oid": file.git_sha1}
    if file.sha256 is not None:
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    return entry


@route("POST", _REPO + r"/paths-info/(?P<revision>[^/]+)")
def paths_info(store: Store, call: Call, repo_id: str, revision: str) -> Answer:
    repo = store.readable(repo_id, call.account)
    files = repo.commits[repo.resolve(revision)].files
    try:
        paths = call.json()["paths"]
    except ValueError:
        paths = parse_qs(call.body.decode())["paths"]
    entries = []
    for path in [paths] if isinstance(paths, str) else paths:
        if path in files:
            entries.append(entry(path, files[path]))
        elif any(name.startswith(f"{path}/") for name in files):
            entries.append({"type": "directory", "path": path, "oid": "0" * 40, "size": 0})
    return answer(entries)


@route("POST", _REPO + r"/preupload/(?P<revision>[^/]+)")
def preupload(store: Store, call: Call, repo_id: str, revision: str) -> Answer:
    repo = store.writable(repo_id, call.account)
    files = repo.commits[repo.resolve(revision)].files
    ignored = files[".gitignore"].data.decode().split() if ".gitignore" in files else []
    modes = []
    for file in call.json()["files"]:
        there = files.get(file["path"])
        mode = "lfs" if file["path"].endswith(".parquet") else "regular"
        oid = there.etag if there else None
        modes.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": file["path"] in ignored, "oid": oid})
    return answer({"files": modes})


@route("POST", _REPO + r"/commit/(?P<branch>[^/]+)")
def commit(store: Store, call: Call, repo_id: str, branch: str) -> Answer:
    repo = store.writable(repo_id, call.account)
    lines = [json.loads(line) for line in call.body.splitlines()]
    header = lines[0]["value"]
    if header.get("parentCommit") not in (None, repo.branches[branch]):
        raise RefusalError(412, "A commit has happened since. Please refresh and try again.")
    files = dict(repo.commits[repo.branches[branch]].files)
    for line in lines[1:]:
        apply(store, repo, files, line["key"], line["value"])
    oid = repo.add(Commit(repo.branches[branch], header["summary"], files), branch)
    url = f"{call.endpoint}/datasets/{repo_id}/commit/{oid}"
    return answer({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})


def apply(store: Store, repo: Repo, files: dict[str, File], key: str, value: dict) -> None:
    path = value["path"]
    if key == "file":
        files[path] = small_file(base64.b64decode(value["content"]))
    elif key == "lfsFile":
        if value["oid"] not in store.objects:
            raise RefusalError(400, f"LFS pointer pointed to a file that does not exist: {path}")
        files[path] = large_file(value["oid"], len(store.objects[value["oid"]]))
    elif key == "deletedFile":
        if files.pop(path, None) is None:
            raise RefusalError(404, "A file with this name doesn't exist", "EntryNotFound")
    elif key == "copyFile":
        files[path] = repo.file(value.get("srcRevision", "main"), value["srcPath"])
    else:
        raise RefusalError(400, f"unknown operation {key}")


@route("POST DELETE", _REPO + r"/(?P<kind>tag|branch)/(?P<name>[^/]+)")
def name_commit(store: Store, call: Call, repo_id: str, kind: str, name: str) -> Answer:
    repo = store.writable(repo_id, call.account)
    names = repo.tags if kind == "tag" else repo.branches
    if not call.body:  # DELETE
        if names.pop(name, None) is None:
            raise RefusalError(404, f"no such {kind}", "RevisionNotFound")
        return answer({})
    asked = call.json()
    new, revision = (asked["tag"], name) if kind == "tag" else (name, asked.get("startingPoint", "main"))
    if new in names:
        raise RefusalError(409, f"{kind} {new} exists already")
    names[new] = repo.resolve(revision)
    return answer({})


@route("GET", _REPO + r"(?:/revision/(?P<revision>[^/]+))?")
def info(store: Store, call: Call, repo_id: str, revision: str | None) -> Answer:
    repo = store.readable(repo_id, call.account)
    oid = repo.resolve(revision or "main")
    siblings = [{"rfilename": name} for name in repo.commits[oid].files]
    facts = {"id": repo_id, "sha": oid, "private": repo.private, "gated": "manual" if repo.gated else False}
    return answer({**facts, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0})


@route("POST", r"/datasets/(?P<repo_id>[^/]+/[^/]+)\.git/info/lfs/objects/batch")
def lfs_batch(store: Store, call: Call, repo_id: str) -> Answer:
    store.writable(repo_id, call.account)
    objects = []
    for wanted in call.json()["objects"]:
        entry = {"oid": wanted["oid"], "size": wanted["size"]}
        if wanted["oid"] not in store.objects:
            upload = {"href": f"{call.storage}/store/{wanted['oid']}?{SIGNATURE}"}
            entry["actions"] = {"upload": upload, "verify": {"href": f"{call.endpoint}/api/lfs/verify"}}
        objects.append(entry)
    return answer({"transfer": "basic", "objects": objects})


@route("POST", r"/api/lfs/verify")
def lfs_verify(store: Store, call: Call) -> Answer:
    asked = call.json()
    if len(store.objects.get(asked["oid"], b"")) != asked["size"]:
        raise RefusalError(400, "The object is not here, or has another size")
    return answer({})


@route("PUT", r"/store/(?P<sha256>[0-9a-f]{64})")
def put_object(store: Store, call: Call, sha256: str) -> Answer:
    _check_signature(call)
    store.put_object(sha256, call.body)
    return Answer()


@route("GET HEAD", r"/store/(?P<sha256>[0-9a-f]{64})")
def get_object(store: Store, call: Call, sha256: str) -> Answer:
    _check_signature(call)
    return Answer(store.objects[sha256], headers={"ETag": f'"{sha256}"', "Accept-Ranges": "bytes"})


def _check_signature(call: Call) -> None:
    if call.query.get("signed") != "by-the-hub":
        raise RefusalError(403, "the address is not signed")


@route("GET HEAD", r"/datasets/(?P<repo_id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
def resolve(store: Store, call: Call, repo_id: str, revision: str, name: str) -> Answer:
    repo = store.downloadable(repo_id, call.account)
    oid = repo.resolve(revision)
    headers = {"X-Repo-Commit": oid, "Accept-Ranges": "bytes"}
    file = repo.file(oid, name)
    if file.sha256 is None:
        return Answer(file.data, headers={**headers, "ETag": f'"{file.etag}"'})
    linked = {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
    location = f"{call.storage}/store/{file.sha256}?{SIGNATURE}"
    return Answer(b"", 302, {**headers, **linked, "Location": location})
