"""An S3 server for tests and benchmarks: moto's, on a free port of this machine, with faults on request.

Run as a file it is a server of its own process, which prints its address and ends with its input:

    python tests/s3_server.py --latency 0.1
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: (method, path) -> whether a fault applies to the request
Match = Callable[[str, str], bool]

#: What obstore needs to sign requests; moto accepts any.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclass
class Fault:
    """What goes wrong with the next requests that match.

    kind : an HTTP status such as "503"; "truncate": half of the body, then the connection closes;
        "slow": the answer waits for ``seconds``.
    times : how many requests fail.
    """

    kind: str
    match: Match
    times: int = 1
    seconds: float = 0.0


@dataclass
class S3Server:
    """The address of a running server, its faults, and what it has seen."""

    endpoint: str = ""
    bucket: str = ""  #: made last
    latency: float = 0.0  #: seconds before the first byte of each answer to GET
    #: whether to give the same answer to the same GET, without moto, which takes 30 ms of a processor
    remembers: bool = False
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)  #: method and path
    most_at_once: int = 0
    _at_once: int = 0
    _remembered: Any = None
    _lock: Any = field(default_factory=threading.Lock)

    def options(self) -> dict[str, str]:
        """The storage options of a client."""
        return {"endpoint": self.endpoint, "region": "us-east-1"}

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request):
            self.bucket = name
        self.forget()

    def make_public(self) -> None:
        """Let everybody read the objects of the bucket."""
        import boto3

        session = boto3.Session("testing", "testing", region_name="us-east-1")
        client = session.client("s3", endpoint_url=self.endpoint)
        for found in client.list_objects_v2(Bucket=self.bucket)["Contents"]:
            client.put_object_acl(Bucket=self.bucket, Key=found["Key"], ACL="public-read")
        client.close()

    def count(self, part: str, method: str = "GET") -> int:
        """How many requests there were whose path contains a text."""
        return sum(found == method and part in path for found, path in self.requests)

    def fail(self, kind: str, part: str, times: int = 1, seconds: float = 0.0) -> Fault:
        """Let the next GET requests fail whose path contains a text; returns the fault."""
        fault = Fault(kind, lambda method, path: method == "GET" and part in path, times, seconds)
        self.faults.append(fault)
        return fault

    def reset(self) -> None:
        """Forget faults and counts."""
        self.faults, self.latency = [], 0.0
        self.forget()

    def forget(self) -> None:
        """Forget what was seen."""
        self.requests, self.most_at_once = [], 0

    def _fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and fault.match(method, path):
                    fault.times -= 1
                    return fault
        return None

    def wrap(self, app: Any) -> Any:
        """The application with faults."""

        def faulty(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            with self._lock:
                self.requests.append((method, path))
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
            try:
                if method == "GET" and self.latency:
                    time.sleep(self.latency)
                fault = self._fault(method, path)
                if fault is None:
                    answer = self._remembered if self.remembers and method == "GET" else app
                    return answer(environ, start_response)
                if fault.kind == "slow":
                    time.sleep(fault.seconds)
                    return app(environ, start_response)
                if fault.kind == "truncate":
                    body = b"".join(app(environ, start_response))
                    return [body[: len(body) // 2]]
                start_response(f"{fault.kind} Injected", [("Content-Length", "0")])
                return [b""]
            finally:
                with self._lock:
                    self._at_once -= 1

        remembered: dict[Any, tuple[str, Any, bytes]] = {}

        def remember(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            at = environ["PATH_INFO"], environ["QUERY_STRING"], environ.get("HTTP_RANGE")
            if at not in remembered:
                heads: list[Any] = []
                body = b"".join(app(environ, lambda *head: heads.append(head)))
                remembered[at] = heads[0][0], heads[0][1], body
            status, headers, body = remembered[at]
            start_response(status, headers)
            return [body]

        self._remembered = remember
        return faulty


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server in threads of this process; it stops at the end of the block."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    app = server.wrap(DomainDispatcherApplication(create_backend_app))
    listener = make_server("127.0.0.1", 0, app, threaded=True)
    server.endpoint = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def put_folder(path: Path, url: str, options: dict[str, str]) -> None:
    """Put a local file or folder into a store, by obstore itself."""
    import obstore

    root, _, key = url.removeprefix("s3://").partition("/")
    store = obstore.store.S3Store(root, config=options, client_options={"allow_http": True})
    files = [path] if path.is_file() else [found for found in path.rglob("*") if found.is_file()]
    for file in files:
        below = file.relative_to(path).as_posix()
        obstore.put(store, key if path.is_file() else f"{key}/{below}", file.read_bytes())


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before the first byte")
    parser.add_argument("--remember", action="store_true", help="answer equal GETs from memory")
    arguments = parser.parse_args()
    with s3_server() as server:
        server.latency, server.remembers = arguments.latency, arguments.remember
        print(server.endpoint, flush=True)  # noqa: T201
        sys.stdin.read()


if __name__ == "__main__":
    main()
