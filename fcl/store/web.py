"""Requests to web servers, ``http://`` and ``https://``, which follow no redirect to another origin.

The client of obstore follows any redirect, so that a server could send fcl to addresses that only this
machine can reach.
"""

from __future__ import annotations

import base64
import errno
import http.client
import netrc
import os
import re
import ssl
import urllib.request
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from fcl.errors import InputError
from fcl.store.clients import Answer, Client, ObjectInfo, denied, repeated

#: Seconds to wait for an answer.
TIMEOUT = 120.0
#: Redirects within the origin that are followed.
MOST_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
#: Characters of keys that stay as they are in the address.
_PLAIN = "/!$&'()*+,;=:@~"
_PART = re.compile(r"bytes (\d+)-(\d+)/(\d+)", re.ASCII)
_REDIRECTS = (301, 302, 303, 307, 308)


def port_of(scheme: str, port: int | None) -> int | None:
    """The port of an address that may leave it out."""
    return _PORTS.get(scheme) if port is None else port


class Web(Client):
    """Requests to one web server, over connections that are kept open.

    Credentials come from the netrc file; proxies and certificates from the environment.
    """

    lists = False

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        super().__init__(root)
        if options:
            raise InputError(
                f"{root}: expected no storage options for a web server, got {', '.join(options)}"
            )
        parts = urlsplit(root)
        self._scheme, self._host = parts.scheme, parts.hostname or ""
        self._port = port_of(parts.scheme, parts.port)
        self._headers = {"User-Agent": "fcl", **_authorization(self._host)}
        self._free: deque[http.client.HTTPConnection] = deque()
        self._proxied = ""  # what precedes a path in requests to a proxy
        self._proxy = _proxy_of(parts.scheme, parts.netloc)
        if self._proxy is not None and parts.scheme == "http":
            self._proxied = root
            self._headers |= _basic("Proxy-Authorization", self._proxy)

    def __del__(self) -> None:
        for connection in getattr(self, "_free", ()):
            connection.close()

    def head(self, key: str) -> ObjectInfo:
        return repeated(self.url(key), partial(self._head, key))

    def _head(self, key: str) -> ObjectInfo:
        _, headers, _ = self._ask("HEAD", key)
        return _info(key, headers)

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Answer:
        return repeated(self.url(key), partial(self._get, key, start, stop))

    def _get(self, key: str, start: int, stop: int | None) -> Answer:
        if stop is not None and stop <= start:
            return Answer(b"", self._head(key))
        asked = ""
        if start < 0:
            asked = f"bytes={start}"
        elif start or stop is not None:
            asked = f"bytes={start}-{'' if stop is None else stop - 1}"
        headers = {"Range": asked} if asked else {}
        # a server without ranges sends all, of which no more than this is read
        status, answer, content = self._ask("GET", key, headers, most=stop)
        part = _PART.fullmatch(answer.get("Content-Range", "")) if status == 206 else None
        if part is not None and len(content) == int(part[2]) - int(part[1]) + 1:
            return Answer(content, _info(key, answer, part[3]))
        if status == 206:
            raise OSError(errno.EIO, "the answer is not the part that was asked for")
        return Answer(memoryview(content)[start:stop] if asked else content, _info(key, answer))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(())

    def put(self, key: str, source: Path | bytes, overwrite: bool) -> None:
        # a server without conditions ignores this one; the caller has looked
        condition = {} if overwrite else {"If-None-Match": "*"}
        repeated(self.url(key), partial(self._put, key, source, condition))

    def _put(self, key: str, source: Path | bytes, condition: Mapping[str, str]) -> None:
        try:
            self._send_object(key, source, condition)
        except FileNotFoundError:  # WebDAV needs the folders first
            parts = key.split("/")
            for end in range(1, len(parts)):
                with suppress(OSError):
                    self._ask("MKCOL", "/".join(parts[:end]))
            self._send_object(key, source, condition)

    def _send_object(self, key: str, source: Path | bytes, condition: Mapping[str, str]) -> None:
        if isinstance(source, bytes):
            self._ask("PUT", key, condition, content=source)
            return
        with source.open("rb") as file:
            length = {"Content-Length": str(os.fstat(file.fileno()).st_size)}
            self._ask("PUT", key, {**length, **condition}, content=file)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            repeated(self.url(key), partial(self._ask, "DELETE", key))

    # -- requests ------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str] | None = None,
        content: Any = None,
        most: int | None = None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Make a request; returns the status below 300, the headers and up to ``most`` bytes."""
        path = f"/{quote(key, safe=_PLAIN)}"
        for _ in range(MOST_REDIRECTS + 1):
            status, answer, body = self._send(method, path, headers or {}, content, most)
            if status not in _REDIRECTS or method not in ("GET", "HEAD"):
                break
            path = self._within(key, path, answer.get("Location", ""))
        else:
            raise InputError(f"{self.url(key)}: redirects more than {MOST_REDIRECTS} times")
        if status < 300:
            return status, answer, body
        if status in (401, 403, 407):
            raise denied(self.url(key))
        if status == 412:
            raise FileExistsError(errno.EEXIST, "exists already", self.url(key))
        if status in (404, 409, 410):
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self.url(key))
        message = f"status {status} {http.client.responses.get(status, '')}".rstrip()
        if status < 500 and status not in (408, 429):
            raise InputError(f"{self.url(key)}: the server answers {message}")
        raise OSError(errno.EIO, f"the server answers {message}")

    def _within(self, key: str, path: str, location: str) -> str:
        """The path of a redirect within the origin; InputError for another origin."""
        url = urljoin(f"{self.root}{path}", location)
        parts = urlsplit(url)
        try:
            port = port_of(parts.scheme, parts.port)
        except ValueError:
            port = None
        if (parts.scheme, parts.hostname, port) != (self._scheme, self._host, self._port):
            address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
            if not parts.query:
                address += unquote(parts.path)
            raise InputError(
                f"{self.url(key)}: redirects to another place, {address}, which fcl does not follow; if "
                "you trust it, give that URL"
            )
        return parts.path + (f"?{parts.query}" if parts.query else "")

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: Any,
        most: int | None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connect()
        try:
            connection.request(method, self._proxied + path, content, {**self._headers, **headers})
            answer = connection.getresponse()
            body = answer.read() if most is None else answer.read(most)
        except http.client.HTTPException as error:
            connection.close()
            raise OSError(errno.EIO, f"no valid answer ({type(error).__name__})") from error
        except BaseException:
            connection.close()
            raise
        if answer.will_close or not answer.isclosed():
            connection.close()
        else:
            self._free.append(connection)
        return answer.status, answer.headers, body

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._host, self._port
        if self._proxy is not None:
            host, port = self._proxy.hostname, self._proxy.port
        if self._scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)
        if self._proxy is not None:
            login = _basic("Proxy-Authorization", self._proxy)
            connection.set_tunnel(self._host, self._port, login)
        return connection


def _info(key: str, headers: http.client.HTTPMessage, size: str | None = None) -> ObjectInfo:
    size = headers.get("Content-Length") if size is None else size
    if size is None or not size.isascii() or not size.isdecimal():
        raise OSError(errno.EIO, "the server does not say how large the object is")
    return ObjectInfo(key, int(size), headers.get("ETag") or headers.get("Last-Modified"))


def _authorization(host: str) -> dict[str, str]:
    """The header for a host that the netrc file names; entries for all hosts do not count."""
    file = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        found = netrc.netrc(file).hosts.get(host)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return {}
    return {} if found is None else _login("Authorization", found[0], found[2] or "")


def _login(header: str, user: str, password: str) -> dict[str, str]:
    words = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {header: f"Basic {words}"}


def _basic(header: str, proxy: Any) -> dict[str, str]:
    if not proxy.username:
        return {}
    return _login(header, unquote(proxy.username), unquote(proxy.password or ""))


def _proxy_of(scheme: str, netloc: str) -> Any:
    """The parts of the address of the proxy that the environment names, or None."""
    named = urllib.request.getproxies().get(scheme)
    if not named or urllib.request.proxy_bypass(netloc):
        return None
    return urlsplit(named if "://" in named else f"http://{named}")
