"""The environment of a program, under PyFlink's module path."""

from firesteel.datastream.data_stream import StreamExecutionEnvironment

__all__ = ["StreamExecutionEnvironment"]
