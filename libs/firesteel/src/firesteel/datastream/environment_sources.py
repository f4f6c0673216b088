"""Sources that an environment makes streams of, besides ``from_source``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from firesteel.common.io import InputFormat
from firesteel.common.typeinfo import TypeDescriptor
from firesteel.common.watermark_strategy import WatermarkStrategy
from firesteel.datastream import checks
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.source import Source
from firesteel.functions.source_function import ParallelSourceFunction, SourceFunction

if TYPE_CHECKING:
    from firesteel.datastream.data_stream import DataStream

__all__ = ["EnvironmentSources"]


class EnvironmentSources:
    """Part of ``StreamExecutionEnvironment``."""

    if TYPE_CHECKING:

        def from_source(
            self,
            source: Source[Any],
            watermark_strategy: WatermarkStrategy,
            source_name: str,
            type_info: TypeDescriptor | None = None,
        ) -> DataStream:
            """Of ``StreamExecutionEnvironment``."""

    def add_source(
        self,
        source_func: SourceFunction[Any],
        source_name: str = "Custom Source",
        type_info: TypeDescriptor | None = None,
    ) -> DataStream:
        """A stream of what a ``SourceFunction`` gives; parallelism 1 unless it is a ``ParallelSourceFunction``.

        What it gave can't be read again after a failure: at most once.

        Raises:
            TypeError: not a source function, name or type.
        """
        from firesteel.connectors.source_function import SourceFunctionSource

        hint = "; a Source goes to from_source()" if isinstance(source_func, Source) else ""
        checks.check_class("add_source", source_func, SourceFunction, hint=hint)
        stream = self._stream(SourceFunctionSource(source_func), source_name, type_info)
        if not isinstance(source_func, ParallelSourceFunction):
            stream._inputs[0].source.non_parallel = True
        return stream

    def create_input(self, input_format: InputFormat, type_info: TypeDescriptor | None = None) -> DataStream:
        """A stream of an input format's records.

        Raises:
            TypeError: not an input format or type.
        """
        if not isinstance(input_format, InputFormat):
            raise TypeError(
                f"create_input() takes a firesteel.common.io.InputFormat, not {type(input_format).__name__}; there is "
                "no JVM for those of Java"
            )
        refuse_coroutines("create_input()", input_format)
        return self._stream(input_format.source(), "Custom Input", type_info)

    def read_text_file(self, file_path: str | os.PathLike[str], charset_name: str = "UTF-8") -> DataStream:
        """A stream of the lines of a file, or of all files below a folder. A method of PyFlink 1.x.

        Raises:
            ProgramError: the path is on another file system, or the charset is not known.
        """
        from firesteel.connectors.file_source import FileSource, StreamFormat

        lines = StreamFormat.text_line_format(charset_name)
        return self._stream(FileSource.for_record_stream_format(lines, file_path).build(), "Custom File Source", None)

    def socket_text_stream(self, hostname: str, port: int, delimiter: str = "\n", max_retries: int = 0) -> DataStream:
        """A stream of text that a server sends; parallelism 1. Java's ``socketTextStream``.

        What was read can't be read again after a failure: at most once.

        Args:
            hostname: of the server.
            port: of the server.
            delimiter: behind each record.
            max_retries: how often to connect again when the connection ends or can't be made; -1 = for ever.

        Raises:
            ProgramError: the port, the delimiter or the number is not valid.
        """
        from firesteel.connectors.socket_text import SocketTextSource

        stream = self._stream(SocketTextSource(hostname, port, delimiter, max_retries), "Socket Stream", None)
        stream._inputs[0].source.non_parallel = True
        return stream

    def _stream(self, source: Source[Any], name: str, type_info: TypeDescriptor | None) -> DataStream:
        return self.from_source(source, WatermarkStrategy.no_watermarks(), name, type_info)
