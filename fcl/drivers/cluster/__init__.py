"""The driver ``dask``: passes on the workers of a Dask cluster, the trainer where the command runs."""
