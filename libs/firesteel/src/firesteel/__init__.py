"""Firesteel: Apache Flink's architecture in Python, running on Spark."""

__version__ = "0.1.0"
