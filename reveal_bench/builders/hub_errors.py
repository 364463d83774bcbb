"""What goes wrong with a Hub, as a sentence for people.

What `huggingface_hub` and `datasets` raise becomes a :class:`HubError`. The original errors are not chained to it: they
may hold signed addresses of uploads. No message holds a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["HubError", "ParentMovedError", "hub_errors"]


class HubError(OSError):
    """The Hub refused or did not answer; the message says what to do."""


class ParentMovedError(HubError):
    """Somebody else changed the repository meanwhile; nothing was published."""


@contextmanager
def hub_errors(repo_id: str, endpoint: str | None = None) -> Iterator[None]:
    """Turn what `huggingface_hub` or ``datasets.load_dataset`` raises in the block into a :class:`HubError`.

    Errors that say nothing of a Hub pass unchanged.
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
    """The error as a sentence; looks at its causes too, as uploads in threads wrap what went wrong."""
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
    "LocalTokenNotFoundError": "there is no token for {url}: set HF_TOKEN, or log in with `hf auth login`",
    "TransportError": "{url} did not answer, or stopped in the middle ({name}): run the same command again",
    "ConnectionError": "{url} did not answer, or stopped in the middle ({name}): run the same command again",
}

_UNSEEN = "there is no {url}, or it is private and the token given (if any) may not read it"
_GATED = "{url} is gated: ask for access on its page, and use a token of the account that has it"

_STATUS = {
    401: "the token is missing or not valid for {url}",
    403: "the token may not do this with {url}",
    409: "{url} is there already, or is being changed: it may be private, and not for this token",
    412: "somebody else changed {url} meanwhile: nothing was published; run the same command again",
    413: "{url} takes no request of this size: write smaller shards",
    429: "{url} was asked too often: wait, and run the same command again",
}


def _not_found(text: str, url: str) -> str:
    if "is a gated dataset" in text:
        return _GATED.format(url=url)
    if text.startswith("Revision"):
        return f"{url} has no such revision"
    return _UNSEEN.format(url=url)


def _answered(names: set[str], status: int, said: str | None, url: str) -> str:
    if "GatedRepoError" in names:
        text = _GATED
    elif "RevisionNotFoundError" in names:
        text = "{url} has no such revision"
    elif "RepositoryNotFoundError" in names:
        text = _UNSEEN
    else:
        again = ": run the same command again" if status >= 500 else ""
        text = _STATUS.get(status, "{url} answered {status}" + again)
    note = f" ({' '.join(said.split())[:200]})" if said and text is not _UNSEEN else ""
    return text.format(url=url, status=status) + note
