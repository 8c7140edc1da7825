"""Clients of object stores: the few requests that fcl makes, whichever library sends them.

``web.py`` has the requests to web servers. obstore serves the schemes that it knows. fsspec serves others
if the user has installed it. All retry a request that fails for a passing reason, with growing pauses.
"""

from __future__ import annotations

import errno
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from fcl.checks import shortened
from fcl.errors import FclError, InputError, StoreError

#: Schemes that obstore serves; fsspec gets the others.
OBSTORE = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "memory")
#: Schemes of web servers, to which fcl sends requests itself.
WEB = ("http", "https")
#: Schemes of the addresses of Dask clusters.
SCHEMES_OF_DASK = ("tcp", "tls", "ws", "wss", "ucx")
#: Storage options of fcl itself, which the libraries do not get.
OWN_OPTIONS = ("requests",)
#: Other names of options that fsspec's users know -> obstore's.
_ALIASES = {"anon": "skip_signature", "endpoint_url": "endpoint"}
#: How often obstore and fcl repeat a request; the pauses double from 0.1 s on, and end at 10 s.
_MOST_RETRIES = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_RETRY_SECONDS = 90.0
#: Larger files are sent in parts.
_LARGEST_PUT = 32 << 20
#: Variables that may name an endpoint without TLS.
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
#: obstore asks this address for credentials if the environment has none.
_METADATA_SERVERS = ("169.254.169.254", "metadata.google.internal")

_INSTALL = "install the extra: pip install 'fcl[cloud]'"
_CREDENTIALS = (
    "give credentials in the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "--storage-option anon=true for public data"
)
Result = TypeVar("Result")


@dataclass(frozen=True)
class ObjectInfo:
    """What a store says about an object.

    key : its path in the bucket.
    size : in bytes.
    version : the ETag or, without one, the time of the last change; None if the store says neither.
    """

    key: str
    size: int
    version: str | None


@dataclass(frozen=True)
class Answer:
    """The bytes of an object or of a part of it, and the object that they are from."""

    content: Any  #: bytes or another buffer
    info: ObjectInfo


class Client(ABC):
    """Requests to one bucket or host.

    Every method raises FileNotFoundError if there is no such object, InputError if access is denied, and
    StoreError if the store fails or cannot be reached.
    """

    #: Whether the store can list objects.
    lists = True

    def __init__(self, root: str) -> None:
        self.root = root  #: URL of the bucket or host, without a slash at the end

    def url(self, key: str) -> str:
        """The URL of an object."""
        return f"{self.root}/{key}"

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Ask for an object without its bytes."""

    @abstractmethod
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Answer:
        """Fetch an object, or its bytes ``start`` to ``stop`` (exclusive); below 0 from its end on."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects whose keys begin with a prefix."""

    @abstractmethod
    def put(self, key: str, source: Path | bytes, overwrite: bool) -> None:
        """Store a local file or bytes; FileExistsError if the object exists and must not be replaced."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects."""


class Obstore(Client):
    """Requests by obstore, for the schemes of OBSTORE."""

    #: Stores in the memory of this process, by host.
    _memory: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, root: str, scheme: str, options: Mapping[str, str]) -> None:
        super().__init__(root)
        try:
            import obstore
        except ImportError as error:
            raise InputError(f"{root}: {scheme}:// needs obstore ({error}); {_INSTALL}") from error
        self._obstore = obstore
        if scheme == "memory":
            from obstore.store import MemoryStore

            self._store = self._memory.setdefault(root, MemoryStore())
            return
        config: Any = {_ALIASES.get(name, name): value for name, value in options.items()}
        named = [config.get("endpoint"), *map(os.environ.get, _ENDPOINTS)]
        plain = any(str(url).startswith("http://") for url in named)
        retry: Any = {
            "max_retries": _MOST_RETRIES,
            "backoff": {
                "base": 2,
                "init_backoff": timedelta(seconds=_FIRST_PAUSE),
                "max_backoff": timedelta(seconds=_LONGEST_PAUSE),
            },
            "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
        }
        client: Any = {"allow_http": plain, "connect_timeout": "10s", "timeout": "120s"}
        try:
            self._store = obstore.store.from_url(
                root, config=config or None, client_options=client, retry_config=retry
            )
        except Exception as error:
            raise InputError(f"{root}: cannot be opened: {_first_line(error)}") from error

    def head(self, key: str) -> ObjectInfo:
        return self._info(self._do(key, lambda: self._obstore.head(self._store, key)))

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Answer:
        part: Any = {"offset": start} if stop is None else (start, stop)
        if start < 0:
            part = {"suffix": -start}
        whole = start == 0 and stop is None

        def fetch() -> Answer:
            options: Any = {} if whole else {"range": part}
            found = self._obstore.get(self._store, key, options=options)
            return Answer(found.bytes(), self._info(found.meta))

        return self._do(key, fetch)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        # a prefix that ends in a slash: obstore compares whole parts of keys
        pages = self._do(prefix, lambda: self._obstore.list(self._store, prefix.rstrip("/")))
        while page := self._do(prefix, lambda: next(pages, None)):
            yield from map(self._info, page)

    def put(self, key: str, source: Path | bytes, overwrite: bool) -> None:
        large = isinstance(source, Path) and source.stat().st_size > _LARGEST_PUT

        def send(content: Path | bytes, mode: Any) -> None:
            try:
                self._obstore.put(self._store, key, content, mode=mode)
            except (NotImplementedError, self._obstore.exceptions.NotSupportedError):
                self._obstore.put(self._store, key, content, mode="overwrite")

        if overwrite or not large:
            self._do(key, partial(send, source, "overwrite" if overwrite else "create"))
            return
        # large objects are sent in parts, which no store can refuse: an empty object takes the name
        self._do(key, partial(send, b"", "create"))
        try:
            self._do(key, partial(send, source, "overwrite"))
        except BaseException:
            with suppress(OSError, FclError):
                self.delete([key])
            raise

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._do(key, partial(self._obstore.delete, self._store, key))

    @staticmethod
    def _info(meta: Any) -> ObjectInfo:
        return ObjectInfo(meta["path"], meta["size"], meta["e_tag"] or _text(meta["last_modified"]))

    def _do(self, key: str, request: Callable[[], Result]) -> Result:
        """Make a request, and explain its error."""
        kinds = self._obstore.exceptions
        url = self.url(key)
        try:
            return request()
        except (FileNotFoundError, kinds.NotFoundError) as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", url) from error
        except (FileExistsError, kinds.AlreadyExistsError) as error:
            raise FileExistsError(errno.EEXIST, "exists already", url) from error
        except (PermissionError, kinds.PermissionDeniedError, kinds.UnauthenticatedError) as error:
            raise denied(url) from error
        except FclError:
            raise
        except Exception as error:
            if any(server in str(error) for server in _METADATA_SERVERS):
                raise InputError(f"{url}: found no credentials; {_CREDENTIALS}") from error
            # requests to list objects have no errors of their own
            if "404 Not Found" in str(error):
                raise InputError(f"{self.root}: there is no such bucket") from error
            if "403 Forbidden" in str(error) or "401 Unauthorized" in str(error):
                raise denied(url) from error
            raise StoreError(f"{url}: the store failed: {_first_line(error)}") from error


class Fsspec(Client):
    """Requests by fsspec, for other schemes."""

    def __init__(self, root: str, scheme: str, options: Mapping[str, str]) -> None:
        super().__init__(root)
        try:
            import fsspec
        except ImportError as error:
            known = ", ".join(f"{name}://" for name in (*OBSTORE, *WEB))
            raise InputError(
                f"{root}: obstore does not know {scheme}://, only {known}; other schemes need fsspec "
                f"({error}); install it with the package that serves {scheme}://"
            ) from error
        try:
            self._files, _ = fsspec.core.url_to_fs(root, use_listings_cache=False, **options)
        except (ImportError, ValueError, TypeError) as error:
            raise InputError(f"{root}: fsspec cannot open it: {_first_line(error)}") from error

    def head(self, key: str) -> ObjectInfo:
        return self._do(key, lambda: self._info(key, self._files.info(self.url(key))))

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Answer:
        def fetch() -> Answer:
            info = self.head(key)
            end = info.size if stop is None else min(stop, info.size)
            begin = max(0, start + info.size) if start < 0 else start
            content = self._files.cat_file(self.url(key), start=begin, end=end)
            if len(content) != end - begin:
                raise OSError(errno.EIO, f"got {len(content)} bytes of {end - begin}")
            return Answer(content, info)

        return self._do(key, fetch)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._files.invalidate_cache()
        below = len(self._files._strip_protocol(self.root).rstrip("/"))
        found = self._do(prefix, lambda: self._files.find(self.url(prefix), detail=True))
        for name, info in found.items():
            yield self._info(name[below:].lstrip("/"), info)

    def put(self, key: str, source: Path | bytes, overwrite: bool) -> None:
        url = self.url(key)
        if not overwrite and self._do(key, lambda: self._files.exists(url)):
            raise FileExistsError(errno.EEXIST, "exists already", url)
        self._files.makedirs(url.rpartition("/")[0], exist_ok=True)
        if not overwrite and "mode" in signature(self._files.pipe_file).parameters:
            # an empty object takes the name; fsspec before 2024.10 has no request that fails
            self._do(key, lambda: self._files.pipe_file(url, b"", mode="create"))
        if isinstance(source, bytes):
            self._do(key, lambda: self._files.pipe_file(url, source))
        else:
            self._do(key, lambda: self._files.put_file(os.fspath(source), url))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._do(key, partial(self._files.rm_file, self.url(key)))

    @staticmethod
    def _info(key: str, info: Mapping[str, Any]) -> ObjectInfo:
        marks = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")
        version = next((info[mark] for mark in marks if info.get(mark) is not None), None)
        if isinstance(version, datetime):  # a number in other answers of the same file system
            version = version.timestamp()
        return ObjectInfo(key, int(info["size"]), _text(version))

    def _do(self, key: str, request: Callable[[], Result]) -> Result:
        return repeated(self.url(key), request)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def denied(url: str) -> InputError:
    """The error for an object that may not be read or written."""
    scheme = url.partition(":")[0]
    if scheme in WEB:
        return InputError(f"{url}: access is denied; {where_secrets_belong(scheme)}")
    return InputError(f"{url}: access is denied; {_CREDENTIALS}")


def where_secrets_belong(scheme: str) -> str:
    """For a message: where credentials for a scheme are to be given."""
    if scheme in WEB:
        return (
            "give user name and password in ~/.netrc, or the file that NETRC names, by a line such as: "
            "machine HOST login NAME password PASSWORD"
        )
    if scheme in SCHEMES_OF_DASK:
        return (
            "a Dask scheduler takes certificates, from files: tls=[CA,CERT,KEY] of the driver dask, or "
            "--dask-tls of fcl predict"
        )
    if scheme in ("gs",):
        return "give them in the environment, by GOOGLE_APPLICATION_CREDENTIALS"
    if scheme in ("az", "adl", "azure", "abfs", "abfss"):
        return "give them in the environment, by AZURE_STORAGE_ACCOUNT_KEY or the like"
    if scheme in OBSTORE:
        return "give them in the environment, by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    return f"give them in the environment, by FSSPEC_{scheme.upper()}_PASSWORD or the like"


def repeated(url: str, request: Callable[[], Result]) -> Result:
    """Make a request, repeat it if the store fails, and explain its error."""
    pause, since = _FIRST_PAUSE, time.monotonic()
    while True:
        try:
            return request()
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", url) from error
        except FileExistsError as error:
            raise FileExistsError(errno.EEXIST, "exists already", url) from error
        except PermissionError as error:
            raise denied(url) from error
        except OSError as error:
            if pause > _FIRST_PAUSE * 2 ** (_MOST_RETRIES - 1) or (
                time.monotonic() - since > _RETRY_SECONDS
            ):
                raise StoreError(f"{url}: the store failed: {_first_line(error)}") from error
        time.sleep(min(pause, _LONGEST_PAUSE))
        pause *= 2


def _first_line(error: BaseException) -> str:
    """The first line of an error of a library, which may be long."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return shortened(lines[0], 400)
