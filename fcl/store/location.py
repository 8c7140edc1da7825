"""Locations: local paths, and paths in object stores that offer what fcl uses of ``pathlib.Path``."""

from __future__ import annotations

import fnmatch
import io
import itertools
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from fcl.checks import file_kind, shown
from fcl.errors import InputError, OutputExistsError
from fcl.numerals import read_whole
from fcl.store.buckets import Bucket, changed, find_bucket, gone
from fcl.store.clients import (
    OWN_OPTIONS,
    SCHEMES_OF_DASK,
    WEB,
    ObjectInfo,
    where_secrets_belong,
)

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
#: A URL that is a word, or follows the name of an option in it.
_URL_AT_END = re.compile(r"(?:^|[=,])([a-zA-Z][a-zA-Z0-9+.-]+://.*)", re.DOTALL)
#: A user name and password after what is meant as a URL, such as ``zip::http://`` or ``http:/``.
_SECRET = re.compile(
    r"(?:(?:https?|ftp|s3|gs|az):[/\\]{1,2}|^\s*[/\\]{2})[^/\\@\s:]*:(?!\d+[/\\])[^@\s]*@",
    re.IGNORECASE,
)
#: Files that show a folder in a store that cannot list its objects.
_FOLDER_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")

#: Options of all remote locations that have none of their own; a command sets them.
_defaults: dict[str, str] = {}


def check_url(url: str) -> None:
    """Raise InputError for a URL with a password, a token or a signature; the message does not show it.

    URLs are stored in checkpoints and logs, and printed. A user name alone is no secret in schemes that
    need it, such as ``sftp://user@host`` and ``abfs://container@account``; for web servers it may be a
    token.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    before, mark, _ = re.split(r"[/?#\\]", rest, maxsplit=1)[0].rpartition("@")
    nameless = scheme in WEB or scheme in SCHEMES_OF_DASK
    # github://organisation:repository@branch
    secret = bool(mark) and (nameless or (":" in before and scheme != "github"))
    # a password with a slash in it: the part before would be taken for a host and its port
    secret |= nameless and "@" in rest and re.match(r"[^/?#@\[]*:(?!\d*(/|$))", rest) is not None
    if secret:
        raise InputError(
            f"{scheme}://***: expected a URL without user name and password, which would be shown, and "
            f"kept in checkpoints and logs; {where_secrets_belong(scheme)}"
        )
    if "?" in rest or ("#" in rest and scheme in WEB):
        public = re.split("[?#]", url, maxsplit=1)[0]
        raise InputError(
            f"{public}: expected the address of an object without ? and #, after which a signature or "
            "token may stand; signed addresses are not supported"
        )
    try:
        parts = urlsplit(url)
        _ = parts.port if nameless else None
    except ValueError as error:
        public = f"{scheme}://***" if "@" in rest else url
        raise InputError(f"{public}: expected a URL such as {scheme}://HOST/PATH") from error


def check_no_secrets(text: str) -> None:
    """Raise InputError for a word of a command line that is a URL with a secret, or ends with one."""
    found = _URL_AT_END.search(text)
    if found is not None and not _is_file_url(found[1]):
        check_url(found[1])
    elif _SECRET.search(text):
        raise InputError(
            "***: expected a file, or a URL such as https://HOST/PATH, got one with a user name and a "
            f"password; {where_secrets_belong('https')}"
        )


class RemotePath(os.PathLike[str]):
    """A path in an object store: ``s3://bucket/folder/train.zarr``.

    It can be pickled and compared, and is opened anew in each process. :func:`fcl.locate` makes it.

    options : mapping of str to str, storage options, such as ``endpoint``.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        check_url(url)
        parts = urlsplit(url)
        self.scheme, self.host = parts.scheme.lower(), parts.netloc
        start = url.index("://") + 3 + len(parts.netloc)
        self.key = re.sub("/+", "/", url[start:]).strip("/")
        if not self.host and self.scheme != "memory":
            raise InputError(f"{url}: expected {self.scheme}://BUCKET/PATH, got no bucket or host")
        self.options = dict(options)

    @property
    def bucket(self) -> Bucket:
        """The requests to the store, shared by all paths in it."""
        return find_bucket(self.scheme, self.host, self.options)

    def __fspath__(self) -> str:
        return f"{self.scheme}://{self.host}/{self.key}"

    __str__ = __fspath__

    def __repr__(self) -> str:
        return f"RemotePath({os.fspath(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemotePath):
            return NotImplemented
        return os.fspath(self) == os.fspath(other) and self.options == other.options

    def __hash__(self) -> int:
        return hash(os.fspath(self))

    def _at(self, key: str) -> RemotePath:
        return RemotePath(f"{self.scheme}://{self.host}/{key}", self.options)

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return self._at(posixpath.join(self.key, os.fspath(name)))

    @property
    def parent(self) -> RemotePath:
        """The folder of this path."""
        return self._at(posixpath.dirname(self.key))

    @property
    def name(self) -> str:
        """The last part, or the bucket."""
        return posixpath.basename(self.key) or self.host

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The last suffix of the name."""
        return PurePosixPath(self.name).suffix

    def resolve(self) -> RemotePath:
        """This path: objects have no links."""
        return self

    def info(self) -> ObjectInfo:
        """Size and version of the object; raises FileNotFoundError if there is none."""
        return self.bucket.client.head(self.key)

    def stamp(self) -> ObjectStamp:
        """What shows whether the object has changed."""
        return ObjectStamp(self, self.info())

    def is_file(self) -> bool:
        """Whether there is an object of this key."""
        try:
            return bool(self.key) and self.info() is not None
        except FileNotFoundError:
            return False

    def is_dir(self) -> bool:
        """Whether there are objects below this path."""
        if not self.bucket.client.lists:
            return any((self / name).is_file() for name in _FOLDER_MARKS)
        return next(self.list(), None) is not None

    def kind(self) -> str:
        """As :func:`fcl.checks.file_kind`: "file", "folder", or "" if nothing is there."""
        if not self.bucket.client.lists and self.is_dir():  # a server may answer for folders, too
            return "folder"
        return "file" if self.is_file() else "folder" if self.is_dir() else ""

    def list(self) -> Iterator[ObjectInfo]:
        """All objects below this path; their keys are relative to it."""
        prefix = f"{self.key}/" if self.key else ""
        for info in self.bucket.client.list(prefix):
            if info.key.startswith(prefix):
                yield ObjectInfo(info.key[len(prefix) :], info.size, info.version)

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """The objects directly in this folder whose names match a pattern."""
        if self.bucket.client.lists:
            for info in self.list():
                if "/" not in info.key and fnmatch.fnmatchcase(info.key, pattern):
                    yield self / info.key

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the object for reading, by parts."""
        assert mode == "rb"
        return io.BufferedReader(self.bucket.file(self.info()), 1 << 20)

    def stat(self) -> os.stat_result:
        """Only ``st_size`` means something."""
        return os.stat_result((0, 0, 0, 0, 0, 0, self.info().size, 0, 0, 0))


@dataclass(frozen=True)
class ObjectStamp:
    """An object as it was when it was opened."""

    path: RemotePath
    info: ObjectInfo

    def check(self) -> None:
        """Raise InputError if the object has changed."""
        try:
            now = self.path.info()
        except FileNotFoundError as error:
            raise gone(str(self.path)) from error
        if now != self.info:
            raise changed(str(self.path), self.info, now)


Location = Path | RemotePath


def names_beside(path: Location) -> Iterator[Any]:
    """Names beside a taken one, of the same kind: model.1.fcl, model.2.fcl, ... for model.fcl."""
    name = path.name
    packed = name.endswith(".gz")
    stem, dot, suffix = name.removesuffix(".gz").rpartition(".")
    if not stem:  # no suffix, or a hidden file
        stem, dot, suffix = name.removesuffix(".gz"), "", ""
    for number in itertools.count(1):
        yield path.parent / f"{stem}.{number}{dot}{suffix}{'.gz' if packed else ''}"


def put_in_place(
    path: Any,
    overwrite: bool,
    put: Callable[[Any, bool], None],
    shown: str | os.PathLike[str] | None = None,
) -> None:
    """Put a complete result at its path, or at an unused name beside it and raise OutputExistsError.

    overwrite : whether the result may replace what is at `path`; it never replaces what is elsewhere.
    put : puts the result at a path, which it may replace or not; FileExistsError if the path is taken.
    shown : the path as the user gave it, for the message.
    """
    try:
        put(path, overwrite)
        return
    except FileExistsError:
        pass
    for name in names_beside(path):
        with suppress(FileExistsError):
            put(name, False)
            raise OutputExistsError(path if shown is None else shown, os.fspath(name))


def is_remote(path: Any) -> bool:
    """Whether a path is a URL of an object store, or such a location; ``file://`` is local."""
    if isinstance(path, RemotePath):
        return True
    return isinstance(path, str) and bool(_SCHEME.match(path)) and not _is_file_url(path)


def _is_file_url(text: str) -> bool:
    return text.lower().startswith("file://")


def locate(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Location:
    """The location of a path or URL.

    Parameters
    ----------
    path : str or path
        A local path, ``file://`` URL, or URL of an object store: ``s3://``, ``gs://``, ``az://``,
        ``https://``, ``memory://``, and what fsspec knows besides.
    storage_options : mapping, optional
        Of a store: ``anon=True``, ``endpoint``, ``region``, ``requests`` (how many at once, 16) and what
        else obstore or fsspec takes for it. Credentials come from the environment unless they are given
        here. None: those of a location that is given, or of the command that runs.

    Returns
    -------
    Path or RemotePath
        Either can be given wherever fcl takes a path.

    Raises
    ------
    InputError
        The URL has no bucket or host, or options are given for a local path.

    Examples
    --------
    >>> fcl.locate("file:///data/train.zarr")
    PosixPath('/data/train.zarr')
    >>> fcl.locate("s3://bucket/train.zarr", {"anon": True})
    RemotePath('s3://bucket/train.zarr')
    """
    if isinstance(path, RemotePath):
        return path if storage_options is None else RemotePath(str(path), _texts(storage_options))
    text = os.fsdecode(path)
    if is_remote(text):
        options = _defaults if storage_options is None else _texts(storage_options)
        return RemotePath(text, options)
    if storage_options:
        raise InputError(f"storage_options: expected the URL of a store, got the local path {text}")
    if _is_file_url(text):
        return Path(unquote(text[text.index("/", len("file://")) :]))
    return Path(text)


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Storage options as text; raises InputError for names and values of other types."""
    if not isinstance(options, Mapping):
        raise InputError(
            f"storage_options: expected a dict such as {{'anon': True}}, got {shown(options)}"
        )
    found = {}
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise InputError(
                f"storage_options: expected text, numbers and booleans by name, got {shown(name)}: "
                f"{shown(value)}"
            )
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        if is_remote(found[name]):
            check_url(found[name])
    for name in OWN_OPTIONS:
        number = read_whole(found[name]) if name in found else 1
        if number is None or not 1 <= number <= 256:
            raise InputError(
                f"storage_options: {name} must be a whole number from 1 to 256, got {found[name]}"
            )
    return found


def default_options() -> dict[str, str]:
    """The storage options of locations that have none of their own."""
    return dict(_defaults)


def set_default_options(options: Mapping[str, Any]) -> None:
    """Set the storage options of locations that have none of their own."""
    checked = _texts(options)
    _defaults.clear()
    _defaults.update(checked)


@contextmanager
def usual_options(options: Mapping[str, Any]) -> Iterator[None]:
    """Set the default options within a block."""
    before = default_options()
    set_default_options(options)
    try:
        yield
    finally:
        set_default_options(before)


def kind_of(location: Location) -> str:
    """Classify an input: "file", "folder", or "" if nothing is there; as ``fcl.checks.file_kind``."""
    return location.kind() if isinstance(location, RemotePath) else file_kind(location)


def open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file or an object for reading; raises OSError as ``open`` does."""
    return locate(path).open("rb")


def open_raw(path: str | os.PathLike[str]) -> io.RawIOBase:
    """As :func:`open_file`, without a buffer."""
    found = locate(path)
    if isinstance(found, RemotePath):
        return found.bucket.file(found.info())
    return io.FileIO(found)


def absolute(path: str | os.PathLike[str]) -> str:
    """The absolute form of a path, by which another process finds it."""
    found = locate(path)
    return str(found) if isinstance(found, RemotePath) else os.path.abspath(found)


def local_path(path: str | os.PathLike[str], what: str) -> Path:
    """The local path of what is written often or read by parts; raises InputError for a store's URL.

    what : for the message, such as "checkpoints".
    """
    found = locate(path)
    if isinstance(found, RemotePath):
        raise InputError(f"{found}: {what} are kept on a local disk; name a local path")
    return found


def local_folder(path: Location) -> str:
    """The local folder in which an output is made; that of temporary files if it is sent to a store."""
    return tempfile.gettempdir() if isinstance(path, RemotePath) else os.fspath(path.parent)


def local_neighbour(path: str | os.PathLike[str], suffix: str) -> str:
    """The local path of what belongs to an output: beside it or, for a remote one, in the working folder.

    Checkpoints and the points of a path are there, since they are written often, and read by parts.
    """
    found = locate(path)
    return f"{found.name if isinstance(found, RemotePath) else os.fspath(path)}{suffix}"
