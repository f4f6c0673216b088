"""Batches of rows or of columns, conversions between the two, and estimates of their sizes."""
