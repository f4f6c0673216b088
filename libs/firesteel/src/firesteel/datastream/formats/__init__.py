"""Formats of records, under PyFlink's module paths."""
