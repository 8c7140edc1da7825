"""Data in an S3 store: the same bits as on the local disk, whatever the store does."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import fcl
from fcl.data.numeric import NumericReader
from fcl.data.sequences import SequenceReader
from fcl.store.buckets import PART_BYTES
from tests.s3_server import S3Server
from tests.store.conftest import Upload, codes


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["v2", "v3", "sharded", "columns", "group"])
def test_layouts(tmp_path: Path, upload: Upload, server: S3Server, kind: str) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(300, 10)).astype(np.float32), rng.normal(size=300)
    group = zarr.open_group(
        tmp_path / "a.zarr",
        mode="w",
        zarr_format=2 if kind == "v2" else 3,
        path="folds/one" if kind == "group" else "",
    )
    more: dict[str, Any] = {"shards": (96, 10)} if kind == "sharded" else {}
    group.create_array("X", data=x, chunks=(32, 4 if kind == "columns" else 10), **more)
    group.create_array("y", data=y, chunks=(100,))
    found = upload(tmp_path / "a.zarr", "a.zarr") + ("::/folds/one" if kind == "group" else "")
    data = fcl.open_data(found, storage_options=server.options())
    blocks = [block for _, _, block in NumericReader(data.rows).iter_blocks(77)]
    np.testing.assert_array_equal(np.concatenate(blocks), x)
    np.testing.assert_array_equal(data.target, y)
    keep = rng.random(300) < 0.3
    blocks = [block for _, _, block in NumericReader(data.rows, keep).iter_blocks(20)]
    np.testing.assert_array_equal(np.concatenate(blocks), x[keep])


@pytest.mark.slow
def test_sparse_rows_and_names(tmp_path: Path, upload: Upload, server: S3Server) -> None:
    from scipy.sparse import random_array

    matrix = random_array(
        (4000, 300), density=0.05, format="csr", random_state=np.random.default_rng(2)
    )
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    csr = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(matrix.shape)}
    x = group.create_group("X", attributes=csr)
    for part in ("indptr", "indices", "data"):
        x.create_array(part, data=getattr(matrix, part), chunks=(1000,))
    codes = np.tile(np.array([0, 1], np.int8), 2000)
    label = {"encoding-type": "categorical", "encoding-version": "0.2.0"}
    y = group.create_group("obs/label", attributes=label)
    y.create_array("codes", data=codes)
    y.create_array("categories", data=np.array(["no", "yes"], np.dtypes.StringDType()))
    found = upload(tmp_path / "a.zarr", "a.zarr")
    server.latency = 0.02
    data = fcl.open_data(found, y="obs/label", storage_options=server.options())
    assert data.target is not None and data.target[:3].tolist() == ["no", "yes", "no"]
    server.forget()
    blocks = NumericReader(data.rows).iter_blocks(512)
    dense = np.concatenate([block.to_dense() for _, _, block in blocks])
    np.testing.assert_array_equal(dense, matrix.toarray())
    assert server.count("/c/") == 2 * 60 and server.most_at_once > 8


@pytest.mark.parametrize("form", ["folder", "file", "fortran"])
def test_npy(tmp_path: Path, upload: Upload, server: S3Server, form: str) -> None:
    x = np.random.default_rng(0).normal(size=(3000, 40))
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d" / "X.npy", np.asfortranarray(x) if form == "fortran" else x)
    np.save(tmp_path / "d" / "y.npy", x[:, 0])
    found = upload(tmp_path / "d", "d") + ("/X.npy" if form == "file" else "")
    data = fcl.open_data(found, storage_options=server.options())
    np.testing.assert_array_equal(data.rows.read(10, 2990), x[10:2990])
    np.testing.assert_array_equal(data.target, x[:, 0])
    data.check_unchanged()


@pytest.mark.slow
def test_requests_at_once(url: str, server: S3Server, folder: Path) -> None:
    server.latency = 0.2
    for requests in (1, 3, 6):
        options = server.options() | {"requests": str(requests)}
        data = fcl.open_data(url, storage_options=options)
        server.forget()
        np.testing.assert_array_equal(codes(data), codes(fcl.open_data(folder)))
        assert server.most_at_once == requests
        assert server.count("X/c/") == 13  # row 0, by which sequences are recognised; each once


def test_bytes_ahead(data: fcl.DataSet, folder: Path, server: S3Server) -> None:
    """At most the bytes of the plan are requested ahead, and one chunk in any case."""
    size = max(file.stat().st_size for file in (folder / "X" / "c").rglob("*") if file.is_file())
    reader = data.rows
    reader.most_ahead = 1
    assert size <= reader.ahead_bytes < 1.1 * size
    reader.most_ahead = 3 * size
    assert reader.ahead_bytes == 3 * size
    assert reader.reading_bytes == 2 * reader.chunk_bytes + 3 * size
    server.forget()
    blocks = SequenceReader(reader).iter_codes(500)
    next(blocks)
    blocks.close()
    # row 0, by which sequences are recognised; the chunk that was read; three ahead, at most one more
    assert server.count("X/c/") <= 1 + 1 + 4


def test_large_objects_come_in_parts(tmp_path: Path, upload: Upload, server: S3Server) -> None:
    x = np.random.default_rng(3).integers(0, 1 << 62, (3 * PART_BYTES // 800, 100))
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=x, chunks=x.shape, compressors=None)
    found = upload(tmp_path / "a.zarr", "a.zarr")
    data = fcl.open_data(found, y=None, storage_options=server.options())
    server.forget()
    server.fail("truncate", "X/c/", 2)
    server.fail("503", "X/c/", 2)
    with data.rows.ahead([(0, len(x))]):
        np.testing.assert_array_equal(data.rows.read(0, len(x)), x)
    assert server.count("X/c/") >= 3 + 4


@pytest.mark.thin(4)
@pytest.mark.parametrize("kind", ["truncate", "500", "503", "slow"])
def test_passing_faults_change_nothing(
    data: fcl.DataSet, folder: Path, server: S3Server, kind: str
) -> None:
    server.forget()
    server.fail(kind, "X/c/", 6, seconds=0.3)
    np.testing.assert_array_equal(codes(data), codes(fcl.open_data(folder)))
    assert server.count("X/c/") >= 13 + (0 if kind == "slow" else 6)


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_a_store_that_stays_down(data: fcl.DataSet, server: S3Server, driver: str) -> None:
    data.fingerprint()
    server.fail("503", "X/c/3", 1000)
    with pytest.raises(fcl.StoreError, match=r"X/c/3/0: the store failed: .*503"):
        fcl.train(data, "kmers:d=3", C=0.1, driver=driver, memory="1GiB")


@pytest.mark.parametrize("listed", [False, True])
def test_a_source_that_changes(
    url: str, data: fcl.DataSet, folder: Path, upload: Upload, listed: bool
) -> None:
    """A chunk that is written again is noticed when it is read, or at the end."""
    if listed:
        codes(data)
    else:
        data.rows.missing_chunks()
    upload(folder / "X" / "c" / "3" / "0", "in/train.zarr/X/c/4/0")
    notices = data.check_unchanged if listed else partial(codes, data)
    with pytest.raises(fcl.InputError, match=r"X/c/4/0 changed while it was being read"):
        notices()


def test_missing_chunks(
    folder: Path, upload: Upload, server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "X" / "c" / "3" / "0").unlink()
    found = upload(folder, "b.zarr")
    with caplog.at_level(logging.WARNING, "fcl"):
        data = fcl.open_data(found, storage_options=server.options())
    assert "1 chunks were never written" in caplog.text
    np.testing.assert_array_equal(codes(data), codes(fcl.open_data(folder)))


def test_damaged_chunk(folder: Path, upload: Upload, server: S3Server) -> None:
    file = folder / "X" / "c" / "3" / "0"
    file.write_bytes(file.read_bytes()[:-20])
    data = fcl.open_data(upload(folder, "b.zarr"), storage_options=server.options())
    with pytest.raises(fcl.InputError, match=r"chunk \(3, 0\).*object s3://.*X/c/3/0"):
        codes(data)


def test_anonymous(url: str, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fcl.InputError, match="access is denied"):
        fcl.open_data(url, storage_options=server.options() | {"anon": True})
    server.make_public()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    data = fcl.open_data(url, storage_options=server.options() | {"anon": True})
    assert data.n_rows == 6000
