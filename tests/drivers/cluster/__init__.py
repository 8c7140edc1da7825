"""Tests of the driver dask. A package, so that its cluster ends when its last test has run."""
