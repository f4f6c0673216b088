"""Formats of records: JSON, CSV, Avro, Parquet."""
