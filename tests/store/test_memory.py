"""The peak of a job that reads from a store is within its budget, and the plan has what is ahead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.s3_server import S3Server
from tests.store.conftest import Upload

pytestmark = pytest.mark.fresh_interpreters

ROOT = Path(__file__).parents[2]
SCRIPT = """
import warnings, fcl, sys
from fcl.memory.meter import peak_memory
warnings.simplefilter("ignore", fcl.ConvergenceWarning)
url, endpoint, budget, driver = sys.argv[1:]
options = {"endpoint": endpoint, "region": "us-east-1", "requests": 32}
data = fcl.open_data(url, storage_options=options)
result = fcl.train(
    data, "kmers:d=3", C=1e-4, max_passes=2, memory=budget, driver=driver,
    writers=2 if driver == "processes" else None,
)
print(data.rows.ahead_bytes, peak_memory(), result.peak_memory, result.model.n_rows)
"""


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 MB of rows in 10 objects of about 2.5 MB, and targets."""
    folder = tmp_path_factory.mktemp("big") / "big.zarr"
    rng = np.random.default_rng(0)
    group = zarr.open_group(folder, mode="w")
    x = rng.integers(0, 4, (1_000_000, 80), np.uint8)
    group.create_array("X", data=x, chunks=(100_000, 80))
    group.create_array("y", data=(x[:, 3] == 1).astype(np.int8), chunks=(500_000,))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("driver", "budget"), [("inline", 700), ("processes", 1000)])
def test_the_peak_is_within_the_budget(
    big: Path, upload: Upload, server: S3Server, driver: str, budget: int
) -> None:
    server.latency = 0.05
    line = [sys.executable, "-c", SCRIPT, upload(big, "big.zarr"), server.endpoint]
    done = subprocess.run(
        [*line, f"{budget}MiB", driver], cwd=ROOT, env=os.environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ahead, peak, reported, rows = map(int, done.stdout.split())
    assert rows == 1_000_000
    workers = 2 if driver == "processes" else 1
    # the share of the plan, which is less than the objects of 32 requests
    assert ahead == (budget << 20) // 16 // workers
    assert server.most_at_once > 8
    assert max(peak, reported) <= budget << 20, f"{peak >> 20} and {reported >> 20} MiB"
