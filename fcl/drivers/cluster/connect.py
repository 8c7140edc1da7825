"""How to connect to a Dask cluster: addresses, certificates, and workers of this machine."""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fcl.checks import shown
from fcl.drivers.cluster.client import Cluster
from fcl.errors import InputError
from fcl.numerals import read_whole
from fcl.store import check_url
from fcl.store.clients import SCHEMES_OF_DASK
from fcl.working_folder import in_use

#: Seconds within which a scheduler must answer.
CONNECT = 30.0
#: Settings of Dask for workers of this machine: Dask looks a while after the death of a worker whether
#: there is a new one, and gives up the worker if that has died, too, although its nanny starts another.
KEEP_WORKERS = {"distributed.deploy.lost-worker-timeout": "1 day"}
#: Loggers that report lost connections and interrupted waits, with tracebacks.
_TALKATIVE = (
    "asyncio",
    "distributed",
    "distributed.client",
    "distributed.core",
    "distributed.nanny",
    "distributed.scheduler",
)
#: Forms of the address of a cluster, for messages.
FORMS = "tcp://HOST:8786, the path of a scheduler file, or local:N"


@dataclass(frozen=True)
class Tls:
    """Files of the certificates with which client and scheduler identify each other."""

    ca: str
    cert: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Tls:
        """Read ``CA,CERT,KEY``; InputError unless these are three files."""
        files = [part.strip() for part in text.split(",")]
        if len(files) != 3:
            raise InputError(f"dask_tls: expected three files CA,CERT,KEY, got {shown(text)}")
        for file in files:
            if not Path(file).is_file():
                raise InputError(f"dask_tls: {file} is not a file; give the files CA,CERT,KEY")
        return cls(*files)

    def security(self) -> Any:
        """The settings as Dask takes them; without encryption the connection is refused."""
        from distributed.security import Security

        security = Security(
            tls_ca_file=self.ca,
            tls_client_cert=self.cert,
            tls_client_key=self.key,
            require_encryption=True,
        )
        try:
            security.get_connection_args("client")
        except OSError as error:  # errors of SSL, too
            raise InputError(
                f"dask_tls: expected certificates and a key in PEM format ({_reason(error)}); check the "
                f"files {self.ca}, {self.cert} and {self.key}"
            ) from error
        return security


def check_cluster(client: Any, where: str | None, tls: str | None) -> None:
    """Raise InputError unless exactly one of a client and an address is given."""
    if (client is None) == (where is None):
        got = "neither" if client is None else "both"
        raise InputError(
            f"driver dask: expected either an address ({FORMS}) or a client, got {got}; name another "
            "driver to train without a cluster"
        )
    if client is not None and tls is not None:
        raise InputError("dask_tls: expected none with a client, which has its own certificates")


@contextmanager
def connected(where: Any, tls: Tls | str | None = None) -> Iterator[Cluster]:
    """Connect to a Dask cluster; closes at the end what it opened.

    where : the address of a scheduler (``tcp://host:8786``, ``tls://...``), the path of a scheduler file,
        or ``local:N`` for N workers on this machine, with one thread each. A client stays open.
    tls : certificates, as ``CA,CERT,KEY``; without them Dask's own configuration applies.

    Raises InputError: the extra ``dask`` is not installed, the address has another form, or no scheduler
        answers.
    """
    try:
        from distributed import Client, LocalCluster

        from fcl.drivers.cluster.plugins import IgnoreInterrupts, NamedModules
    except ImportError as error:
        raise InputError(
            f"dask: the package distributed cannot be imported ({error}); pip install 'fcl[dask]'"
        ) from error
    if isinstance(where, Client):
        if where.asynchronous:
            raise InputError("client: expected a synchronous client, got an asynchronous one")
        cluster = Cluster(where)
        try:
            yield cluster
        finally:
            cluster.release()
        return
    if not isinstance(where, str):
        raise InputError(
            f"client: expected a distributed.Client, got {type(where).__name__}; as text, give {FORMS}"
        )
    if isinstance(tls, str):
        tls = Tls.parse(tls)
    place: dict[str, Any] = {"security": None if tls is None else tls.security()}
    kind, _, number = where.partition(":")
    if kind == "local":
        n_workers = read_whole(number)
        if n_workers is None or n_workers < 1:
            raise InputError(f"dask: expected {FORMS}, with N from 1, got {shown(where)}")
        if tls is not None:
            raise InputError("dask_tls: expected none with local:N, which needs no network")
    else:
        if names := in_use():
            raise InputError(
                f"dask: {', '.join(names)} is in the working folder, where only workers of this "
                "machine (local:N) look for modules; put its folder into PYTHONPATH here and where the "
                "workers are started, or install it on all machines"
            )
        place["address"] = where if "://" in where else _address_in(where)
        _check_address(place["address"], tls)
    with ExitStack() as stack:
        stack.enter_context(_silence())
        if kind == "local":
            import dask

            stack.enter_context(dask.config.set(KEEP_WORKERS))
            stack.enter_context(_safe_path())
            place["address"] = stack.enter_context(
                LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            )
        try:
            client = Client(**place, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"dask: no scheduler answers at {where} ({_reason(error)}); start one with: dask "
                "scheduler"
            ) from error
        stack.callback(_close, client)
        if kind == "local":
            client.register_plugin(IgnoreInterrupts())
            client.register_plugin(NamedModules())
        yield Cluster(client)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _address_in(file: str) -> str:
    """The address in a scheduler file."""
    if not Path(file).is_file():
        raise InputError(f"dask: expected {FORMS}, got {shown(file)}; there is no such file")
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))["address"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"dask: {file} is not a scheduler file, which has an address in JSON; give {FORMS}"
        ) from error
    return str(found)


def _check_address(address: str, tls: Tls | None) -> None:
    """Raise InputError unless something listens at an address.

    Dask's client would take a minute to give up, and more to close.
    """
    if "://" in address:
        check_url(address)
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme not in SCHEMES_OF_DASK:
        raise InputError(f"dask: expected {FORMS}, got {shown(address)}")
    if tls is not None and parts.scheme not in ("tls", "wss"):
        raise InputError(
            f"dask_tls: expected an encrypted address such as tls://{host}:{port}, got {address}; start "
            "the scheduler with its certificates, or leave out dask_tls"
        )
    end = time.monotonic() + CONNECT
    while True:
        try:
            socket.create_connection((host, port), timeout=CONNECT).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise InputError(
                    f"dask: no scheduler answers at {address} ({_reason(error)}); start one with: dask "
                    "scheduler"
                ) from error
        time.sleep(0.2)


def _close(client: Any) -> None:
    """Close a client, whose scheduler may be gone."""
    with suppress(Exception):
        client.close(timeout=5)
    gc.collect()  # waits that were interrupted report their end now, and not on the terminal later


@contextmanager
def _safe_path() -> Iterator[None]:
    """Start workers and what watches over them without modules of the working folder."""
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Dask's messages about lost connections from the terminal; fcl reports what they mean."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
