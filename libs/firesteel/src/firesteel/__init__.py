"""Firesteel: Apache Flink's architecture in Python, running on Spark."""

from firesteel.core.moved_modules import import_by_old_names

__version__ = "0.1.0"
import_by_old_names()
