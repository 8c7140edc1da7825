"""Readers of tables: CSV, TSV and Parquet."""
