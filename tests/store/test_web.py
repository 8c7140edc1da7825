"""Web servers: ranges, credentials from the netrc file, redirects, proxies, and passwords in URLs."""

from __future__ import annotations

import base64
import http.server
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.errors import InputError, StoreError
from fcl.store import check_no_secrets, clients
from fcl.store.web import Web
from tests.store.conftest import invoke, serving

CONTENT = bytes(range(256)) * 4
Handle = Callable[[Any], None]


class Server:
    """A server on this machine: ``handle`` answers each request, and ``seen`` has their headers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.handle: Handle = lambda request: answer(request, 200, CONTENT)
        self.url = ""


def answer(request: Any, status: int, content: bytes = b"", **headers: str) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content)


def ranges(request: Any) -> None:
    """A server that knows ranges."""
    asked = request.headers.get("Range")
    if asked is None:
        return answer(request, 200, CONTENT, ETag='"1"')
    first, _, last = asked.removeprefix("bytes=").partition("-")
    begin = int(first) if first else len(CONTENT) - int(last)
    end = min(int(last) + 1, len(CONTENT)) if first and last else len(CONTENT)
    where = f"bytes {begin}-{end - 1}/{len(CONTENT)}"
    return answer(request, 206, CONTENT[begin:end], Content_Range=where, ETag='"1"')


@contextmanager
def answering() -> Iterator[Server]:
    found = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def all(self) -> None:
            found.seen.append((self.command, self.path, dict(self.headers)))
            length = int(self.headers.get("Content-Length") or 0)
            self.body = self.rfile.read(length)  # type: ignore[attr-defined]
            found.handle(self)

        do_GET = do_HEAD = do_PUT = do_DELETE = do_MKCOL = all

    with serving(Handler) as host:
        found.url = f"http://{host}"
        yield found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(clients, "_FIRST_PAUSE", 0.001)
    with answering() as found:
        yield found


PARTS = ((0, None), (0, 1), (10, 300), (1000, 5000), (300, None), (-7, None), (5, 5))


@pytest.mark.parametrize("handle", [ranges, lambda request: answer(request, 200, CONTENT)])
def test_parts(handle: Handle, server: Server) -> None:
    """Also from a server that sends all whatever part was asked for."""
    server.handle = handle
    for start, stop in PARTS:
        web = Web(server.url, {})
        for _ in range(2):
            found = web.get("a", start, stop)
            assert bytes(found.content) == CONTENT[start:stop]
            assert found.info.size == len(CONTENT) == web.head("a").size


def test_keys_are_quoted(server: Server) -> None:
    Web(server.url, {}).head("a b/é%+@(1)")
    assert server.seen[0][1] == "/a%20b/%C3%A9%25+@(1)"


def test_writing(server: Server, tmp_path: Path) -> None:
    stored: dict[str, bytes] = {}
    folders = {"/"}

    def dav(request: Any) -> None:
        parent = request.path.rpartition("/")[0] or "/"
        if request.command == "MKCOL":
            folders.add(request.path)
        elif parent not in folders:
            return answer(request, 409)
        elif request.command == "PUT":
            if request.headers["If-None-Match"] == "*" and request.path in stored:
                return answer(request, 412)
            stored[request.path] = request.body
        return answer(request, 201)

    server.handle = dav
    web = Web(server.url, {})
    (tmp_path / "file").write_bytes(CONTENT)
    web.put("a/b/file", tmp_path / "file", True)
    web.put("text", b"abc", True)
    for source in (b"other", tmp_path / "file"):
        with pytest.raises(FileExistsError):
            web.put("text", source, False)
    web.put("new", b"new", False)
    assert stored == {"/a/b/file": CONTENT, "/text": b"abc", "/new": b"new"}
    web.delete(["text"])
    assert [seen[0] for seen in server.seen].count("DELETE") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (404, FileNotFoundError, "no such object"),
        (401, InputError, r"access is denied; .*netrc"),
        (403, InputError, r"access is denied; .*netrc"),
        (400, InputError, "status 400 Bad Request"),
        (304, InputError, "status 304"),
        (503, StoreError, "the store failed: .*status 503"),
    ],
)
def test_errors(status: int, error: type[Exception], words: str, server: Server) -> None:
    server.handle = lambda request: answer(request, status)
    with pytest.raises(error, match=words):
        Web(server.url, {}).get("a")


def test_passing_failures_are_repeated(server: Server) -> None:
    def failing(request: Any) -> None:
        if len(server.seen) == 1:
            return answer(request, 503)
        if len(server.seen) == 2:
            request.close_connection = True
            return request.connection.close()
        if len(server.seen) == 3:  # cut off
            request.send_response(200)
            request.send_header("Content-Length", "99")
            request.end_headers()
            request.close_connection = True
            return None
        return answer(request, 200, CONTENT)

    server.handle = failing
    assert Web(server.url, {}).get("a").content == CONTENT
    assert len(server.seen) == 4


# -- credentials


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_credentials_come_from_the_netrc_file(server: Server, tmp_path: Path) -> None:
    """Only those of this host: an entry for all hosts would give them to any."""
    (tmp_path / "netrc").write_text(
        "machine 127.0.0.1 login me password p:w\ndefault login other password secret\n"
    )
    wanted = basic("me", "p:w")

    def checking(request: Any) -> None:
        allowed = request.headers.get("Authorization") == wanted
        answer(request, 200 if allowed else 401, CONTENT)

    server.handle = checking
    assert Web(server.url, {}).get("a").content == CONTENT
    with pytest.raises(InputError, match="access is denied"):
        Web(server.url.replace("127.0.0.1", "localhost"), {}).get("a")


#: URL -> where the message says that its secret belongs
SECRETS = {
    "http://user:hunter2@host/x.zarr": "netrc",
    "https://hunter2@host/x.zarr": "netrc",
    "https://user:hun/ter2@host/x.zarr": "netrc",
    "HTTPS://user:hunter2@[::1]:80/x": "netrc",
    "s3://AKIA:hunter2@bucket/x": "AWS_SECRET_ACCESS_KEY",
    "gs://a:hunter2@c/d": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs://a:hunter2@c/d": "AZURE_STORAGE_ACCOUNT_KEY",
    "sftp://user:hunter2@host/x": "FSSPEC_SFTP_PASSWORD",
    "tcp://a:hunter2@c/d": "tls=",
    "https://host/x.zarr?X-Amz-Signature=hunter2": "without [?] and #",
    "https://host/x.zarr#token=hunter2": "without [?] and #",
    "s3://bucket/x?sig=hunter2": "without [?] and #",
}
#: what is meant as a URL
ALMOST = (
    "zip::http://u:hunter2@h/x", " http://u:hunter2@h/x", "http:/u:hunter2@h/x", "//u:hunter2@h/x",
    "HTTP:\\\\u:hunter2@h/x",
)  # fmt: skip
HARMLESS = (
    "sftp://user@host/x", "abfs://container@account.dfs.core.windows.net/x", "s3://bucket/x@1#2",
    "github://org:repo@main/x", "https://host:8080/x@2.zarr", "http://[::1]:80/x", "https://host/a:b@c",
    "http://h:8080/p@x", "s3://b/a:b@c",
)  # fmt: skip


def says_no_secret(text: str) -> bool:
    return "hunter2" not in text and "hun/ter2" not in text and "ter2" not in text


@pytest.mark.parametrize("url", SECRETS)
def test_a_secret_in_a_url_is_refused(url: str) -> None:
    doors = fcl.locate, fcl.open_data, lambda url: fcl.locate("s3://bucket/x", {"endpoint": url})
    for door in doors:
        with pytest.raises(InputError, match=SECRETS[url]) as caught:
            door(url)
        assert says_no_secret(str(caught.value))


def test_words_that_are_no_urls() -> None:
    """A secret in what is meant as a URL is not shown; harmless words are not refused."""
    for word in ALMOST:
        with pytest.raises(InputError, match="user name and a password") as caught:
            check_no_secrets(word)
        assert says_no_secret(str(caught.value))
    for word in (*HARMLESS, "/d/a:b@c.csv", "//host/a"):
        check_no_secrets(word)
    assert [str(fcl.locate(url)) for url in HARMLESS] == list(HARMLESS)


COMMANDS = (
    ("train", "URL", "--features", "kmers:d=2", "--C", "1", "--out", "o.fcl", "--log-json", "log"),
    ("train", "data", "--valid", "URL", "--features", "kmers:d=2", "--C", "1", "--out", "o.fcl"),
    ("train", "data", "--features", "kmers:d=2", "--C", "1", "--out=URL"),
    ("train", "data", "--storage-option", "endpoint=URL"),
    (
        "train",
        "data",
        "--features",
        "kmers:d=2",
        "--C",
        "1",
        "--out",
        "o.fcl",
        "--driver",
        "dask:address=URL",
    ),
    ("train", "--resume", "URL"),
    ("train", "data", "extra", "URL"),
    ("predict", "m.fcl", "URL", "--out", "s.npy"),
    ("predict", "URL", "data", "--out", "s.npy"),
    ("inspect", "URL"),
    ("certify", "URL", "data"),
    ("stagewise", "URL", "--features", "columns", "--out", "o.fcl"),
    ("online", "URL", "--features", "columns", "--C", "1", "--out", "o.fcl"),
    ("convert", "URL", "o.zarr"),
    ("report", "m.fcl", "--data", "URL", "--out", "r.html"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_command_shows_or_keeps_a_password(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = "http://user:hunter2@127.0.0.1:9/x.zarr"
    given = [word.replace("URL", url) for word in arguments]
    result = invoke(*given, code=2)
    assert "expected a URL without user name" in result.stderr
    assert says_no_secret(result.output) and list(tmp_path.iterdir()) == []


def test_dask_in_python(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.zeros((4, 2)))
    np.save(tmp_path / "y.npy", np.arange(4) % 2)
    pytest.importorskip("distributed")
    data = fcl.open_data(tmp_path)
    with pytest.raises(InputError, match="certificates") as caught:
        fcl.train(data, "columns", C=1.0, driver="dask:address=tcp://user:hunter2@127.0.0.1:1")
    assert says_no_secret(str(caught.value))


# -- redirects


def to(location: str) -> Handle:
    return lambda request: (
        answer(request, 302, Location=location)
        if "there" not in request.path
        else answer(request, 200, CONTENT)
    )


@pytest.mark.parametrize("location", ["/there", "there?v=1", "URL/there"])
def test_redirects_within_the_origin(location: str, server: Server) -> None:
    server.handle = to(location.replace("URL", server.url))
    assert Web(server.url, {}).get("a/b").content == CONTENT
    assert Web(server.url, {}).head("a/b").size == len(CONTENT)


@pytest.mark.slow
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_to_another_origin(status: int, server: Server) -> None:
    web = Web(server.url, {})
    with answering() as other:
        server.handle = lambda request: answer(request, status, Location=f"{other.url}/there?sig=x")
        for read in (web.get, web.head):
            with pytest.raises(InputError, match=f"redirects to another place, {other.url}, which"):
                read("a")
        with pytest.raises(InputError, match="redirects to another place"):
            fcl.open_data(f"{server.url}/x.zarr")
        assert other.seen == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "location", ["http://localhost:PORT/there", "https://127.0.0.1:PORT/there", "//[::1]/there",
                 "ftp://127.0.0.1:PORT/there", "http://127.0.0.1:99999/there",
                 "http://169.254.169.254/latest/meta-data"],
)  # fmt: skip
def test_another_name_scheme_or_port_is_another_origin(location: str, server: Server) -> None:
    server.handle = to(location.replace("PORT", server.url.rpartition(":")[2]))
    with pytest.raises(InputError, match="redirects to another place"):
        Web(server.url, {}).get("a")
    assert len(server.seen) == 1


def test_redirects_in_a_circle(server: Server) -> None:
    server.handle = lambda request: answer(request, 302, Location="/a")
    with pytest.raises(InputError, match="redirects more than 5 times"):
        Web(server.url, {}).get("a")


def test_a_proxy_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//me:pw@"))
    web = Web("http://nowhere.invalid", {})
    assert web.get("a/b").content == CONTENT
    _, path, headers = server.seen[0]
    assert path == "http://nowhere.invalid/a/b" and headers["Host"] == "nowhere.invalid"
    assert headers["Proxy-Authorization"] == basic("me", "pw")
