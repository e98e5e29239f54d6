"""RemoteContents: contents by name in S3, Google Cloud Storage, Azure or another service that fsspec knows.

The credentials come from where each service has them: variables, a file in the home folder, or the role of the
machine. WTB never sees them.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, cached_property
from threading import Thread
from typing import Any

from wtb.domain.errors import InvalidInput, MissingLibrary, StorageUnavailable
from wtb.domain.secrets import Masker
from wtb.infrastructure.observation import stay_unobserved, unobserved

_REQUESTS = 8
"""How many contents are sent at the same time."""
_PLACE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}-[0-9a-f]{16}")
_CONFIG = {"connect_timeout": 5, "read_timeout": 20, "retries": {"mode": "standard", "max_attempts": 3}}
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"use_listings_cache": False, "skip_instance_cache": True, "config_kwargs": _CONFIG},
}
_S3_TRIES = 2
"""How often s3fs tries again by itself, beside each single request: an answer may break off in the middle."""
_INSTALL = "pip install 'workflow-test-bench[s3]'"

_NO_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or what your service uses), or give this machine a role"
)
_REFUSED = "check the credentials, and that they may read, write, list and delete there"
_MISSING = "create the bucket, or correct the setting `objects`"
_BUSY = "the service is overloaded: try again later"
_UNREACHABLE = "check the network and the address of the service, and try again"
_BY_NAME = {
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": _NO_CREDENTIALS,
    "EndpointConnectionError": _UNREACHABLE,
    "ConnectTimeoutError": _UNREACHABLE,
    "ReadTimeoutError": _UNREACHABLE,
    "ConnectionClosedError": _UNREACHABLE,
    "ConnectionError": _UNREACHABLE,
}
"""Advice for errors of libraries that may not be installed."""


class RemoteContents:
    """Contents below one address. Each name is written once, in one request, so no reader sees half a content."""

    def __init__(self, url: str) -> None:
        _check_library(url)
        self.url = url

    @cached_property
    def _place(self) -> tuple[Any, str]:
        """The file system and the path of the root; opened when it is first used, because loading takes a second."""
        from fsspec import get_filesystem_class
        from fsspec.core import url_to_fs

        protocol = _protocol(self.url)
        loop = {"loop": _own_loop()} if get_filesystem_class(protocol).async_impl else {}
        files, root = url_to_fs(self.url, **_OPTIONS.get(protocol, {}), **loop)
        if protocol == "s3":
            files.retries = _S3_TRIES
        return files, str(root).rstrip("/")

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write contents, several at a time; when this returns, all of them are there."""
        with ThreadPoolExecutor(min(_REQUESTS, len(contents))) as threads:
            list(threads.map(self._write_one, contents, contents.values()))

    def _write_one(self, place: str, content: bytes) -> None:
        with self._reported("objects cannot be written"):
            files, root = self._place
            files.pipe_file(f"{root}/{place}", content)

    def find(self, place: str) -> bytes | None:
        """Return the content with this name; None if there is none."""
        with self._reported("an object cannot be read"):
            files, root = self._place
            try:
                return bytes(files.cat_file(f"{root}/{place}"))
            except FileNotFoundError:
                return None

    def remove(self, place: str) -> None:
        """Remove the content with this name, if there is one."""
        with self._reported("an object cannot be deleted"):
            files, root = self._place
            try:
                files.rm_file(f"{root}/{place}")
            except FileNotFoundError:
                return

    def list_places(self) -> Iterator[set[str]]:
        """Yield the names of all contents, a folder at a time; other files are left out."""
        for folder in self._names(""):
            if len(folder) == 2:
                yield {place for name in self._names(folder) if _PLACE.fullmatch(place := f"{folder}/{name}")}

    def _names(self, folder: str) -> list[str]:
        with self._reported("objects cannot be listed"):
            files, root = self._place
            try:
                found = files.ls(f"{root}/{folder}".rstrip("/"), detail=False, refresh=True)
            except FileNotFoundError:
                return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in found]

    def remove_older(self, place: str, at: datetime) -> bool:
        """Remove a content that was written before that time; return whether it was."""
        with self._reported("an object cannot be deleted"):
            files, root = self._place
            try:
                modified: datetime = files.modified(f"{root}/{place}")
            except FileNotFoundError:
                return False
        if _aware(modified) >= at:
            return False
        self.remove(place)
        return True

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        """Raise StorageUnavailable for an error of the service; the message says what to do.

        What the library reads meanwhile, such as credentials, is no input of the node that waits for it.
        """
        try:
            with unobserved():
                yield
        except (InvalidInput, StorageUnavailable):
            raise
        except Exception as error:  # every library has its own errors
            reason = Masker().text(str(error).partition("\n")[0])
            raise StorageUnavailable(f"{what} in {self.url}: {reason}; {_advice(error)}") from error


@cache
def _own_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop in a thread of its own. fsspec's loop serves the user's nodes too, which are observed."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(2, initializer=stay_unobserved))
    Thread(target=_run_for_ever, args=(loop,), name="wtb-objects", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_own_loop.cache_clear)  # a forked process does not have its thread


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    stay_unobserved()
    loop.run_forever()


def _protocol(url: str) -> str:
    return url.partition("://")[0]


def _check_library(url: str) -> None:
    """Raise MissingLibrary, before anything runs, if fsspec or its library for this address is not installed."""
    if importlib.util.find_spec("fsspec") is None:
        raise MissingLibrary(f"objects in {url} need fsspec: {_INSTALL}")
    from fsspec.registry import known_implementations

    known = known_implementations.get(_protocol(url))
    if known is None:
        raise InvalidInput(f"objects cannot be stored in {url}: fsspec does not know {_protocol(url)}://")
    library = known["class"].partition(".")[0]
    if importlib.util.find_spec(library) is None:
        raise MissingLibrary(
            f"objects in {url} need {library}: {_INSTALL if library == 's3fs' else f'pip install {library}'}"
        )


def _advice(error: Exception) -> str:
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_NAME:
            return _BY_NAME[kind.__name__]
    match error:
        case FileNotFoundError():
            return _MISSING
        case PermissionError():
            return _REFUSED
        case TimeoutError():
            return _UNREACHABLE
        case OSError(errno=errno.EBUSY):
            return _BUSY
    return "fix that and try again"


def _aware(at: datetime) -> datetime:
    """Return a time with its zone; services that leave it out mean UTC."""
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
