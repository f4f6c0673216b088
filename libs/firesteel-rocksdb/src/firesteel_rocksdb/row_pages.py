"""Rows of one key as bytes: a page has some rows, each with its columns and the numbers beside it.

A page begins with the number of its layout (one byte), the number of pages of its key (four bytes; only in page 0 it is
right), the number of its rows (two bytes), and the bytes of each row (four each). A row has a bit for each column that
says whether it is not null, numbers one behind the other, the length of each text, and then the texts. Nested values
are texts in the form of ``state/columnar/nested_bytes.py``. Numbers are little-endian. Pages are part of checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.state.columnar.nested_bytes import bytes_of, values_of
from firesteel.state.columnar.row_contents import is_wide, wide_numbers
from firesteel.state.columnar.slot_lists import spread
from firesteel.state.columnar.values import Codec

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_HEAD: Final = 7
_LENGTH: Final = 4


@dataclass(frozen=True)
class PageRows:
    """The rows of some pages.

    Attributes:
        pages: number of the page of each row, among those that were read.
        columns: of the rows.
        numbers: beside the rows, by name.
    """

    pages: Ints
    columns: list[pa.Array]
    numbers: dict[str, Ints]


class PageLayout:
    """What rows in pages consist of.

    Args:
        number: of the layout.
        schema: of the rows.
        numbers: names of the numbers beside each row.
    """

    def __init__(self, number: int, schema: pa.Schema, numbers: Sequence[str]) -> None:
        self.number, self.schema, self.numbers = number, schema, list(numbers)
        self._codecs = {place: Codec(field.type) for place, field in enumerate(schema)}
        self._wide = [place for place, field in enumerate(schema) if is_wide(field.type)]
        self._fixed = [place for place, codec in self._codecs.items() if codec.fixed]
        self._texts = [place for place in range(len(schema)) if place not in self._wide and place not in self._fixed]
        fields: list[tuple[Any, ...]] = [("valid", "u1", ((len(schema) + 7) // 8,))] if len(schema) else []
        fields += [(f"c{place}", self._codecs[place].dtype.newbyteorder("<")) for place in self._fixed]
        fields += [(f"c{place}", f"V{schema.field(place).type.bit_width // 8}") for place in self._wide]
        fields += [(f"n{number}", "<i8") for number in range(len(numbers))]
        fields += [(f"l{place}", "<u4") for place in self._texts]
        self._dtype = np.dtype(fields)

    def write(
        self, columns: Sequence[pa.Array], numbers: Sequence[Ints], counts: Ints, pages_of_key: Ints
    ) -> list[bytes]:
        """Bytes of pages.

        Args:
            columns: of the rows, page by page.
            numbers: beside the rows.
            counts: number of rows of each page.
            pages_of_key: number of pages of the key of each page.
        """
        count = int(counts.sum())
        data, lengths = self._rows(columns, numbers, count)
        heads = np.empty((len(counts), _HEAD), np.uint8)
        heads[:, 0] = self.number
        heads[:, 1:5] = pages_of_key.astype("<u4").view(np.uint8).reshape(-1, 4)
        heads[:, 5:7] = counts.astype("<u2").view(np.uint8).reshape(-1, 2)
        head, sizes = heads.tobytes(), lengths.astype("<u4").tobytes()
        row_ends = np.cumsum(counts)
        ends = np.concatenate([[0], np.cumsum(lengths)])[row_ends].tolist()
        pages = []
        start, first = 0, 0
        for page, (end, last) in enumerate(zip(ends, row_ends.tolist(), strict=True)):
            pages.append(
                head[page * _HEAD : (page + 1) * _HEAD] + sizes[first * _LENGTH : last * _LENGTH] + data[start:end]
            )
            start, first = end, last
        return pages

    def _rows(self, columns: Sequence[pa.Array], numbers: Sequence[Ints], count: int) -> tuple[bytes, Ints]:
        """The rows one behind the other, and the bytes of each."""
        records = np.zeros(count, self._dtype)
        if len(self.schema):
            valid = np.ones((count, len(self.schema)), bool)
            for place, column in enumerate(columns):
                if column.null_count:
                    valid[:, place] = column.is_valid().to_numpy(zero_copy_only=False)
            records["valid"] = np.packbits(valid, axis=1, bitorder="little")
        for place in self._fixed:
            records[f"c{place}"] = self._codecs[place].numbers(columns[place])
        for place in self._wide:
            if count:
                records[f"c{place}"] = wide_numbers(columns[place])
        for place, values in enumerate(numbers):
            records[f"n{place}"] = values
        lengths = np.full(count, self._dtype.itemsize, np.int64)
        texts = []
        for place in self._texts:
            text = columns[place]
            text = bytes_of(text) if pt.is_nested(text.type) else text.cast(pa.binary())
            texts.append(text.fill_null(b""))
            sizes = pc.binary_length(texts[-1]).to_numpy(zero_copy_only=False)
            records[f"l{place}"] = sizes
            lengths += sizes
        if not texts:
            return records.tobytes(), lengths
        size = self._dtype.itemsize
        offsets = pa.py_buffer((np.arange(count + 1) * size).astype(np.int64))
        fixed = pa.Array.from_buffers(pa.large_binary(), count, [None, offsets, pa.py_buffer(records.tobytes())])
        large = [text.cast(pa.large_binary()) for text in texts]
        joined = pc.binary_join_element_wise(fixed, *large, pa.scalar(b"", pa.large_binary()))
        return (joined.buffers()[2].to_pybytes() if count else b""), lengths

    def read(self, pages: Sequence[bytes]) -> PageRows:
        """The rows of pages of this layout."""
        data = np.frombuffer(b"".join(pages), np.uint8)
        page_starts = np.cumsum([0, *map(len, pages)])[:-1]
        counts = _gathered(data, page_starts + 5, "<u2")
        sizes = _gathered(data, _places(page_starts + _HEAD, counts, _LENGTH), "<u4")
        first_rows = page_starts + _HEAD + _LENGTH * counts
        before = np.cumsum(sizes) - sizes
        firsts = np.cumsum(counts) - counts  # number of the first row of each page
        page_of_row = np.repeat(np.arange(len(pages)), counts)
        within = before - np.repeat(np.append(before, 0)[np.minimum(firsts, len(before))], counts)
        starts = first_rows[page_of_row] + within
        size, count = self._dtype.itemsize, len(starts)
        matrix = data[starts[:, None] + np.arange(size)]
        records = np.ascontiguousarray(matrix).reshape(-1).view(self._dtype) if count else np.zeros(0, self._dtype)
        valid = None
        if len(self.schema):
            valid = np.unpackbits(records["valid"], axis=1, bitorder="little").astype(bool)
        columns: list[pa.Array] = [None] * len(self.schema)
        at = starts + size
        for place in self._texts:
            lengths = records[f"l{place}"].astype(np.int64)
            columns[place] = self._text(place, data[spread(at, lengths)], lengths, self._mask(valid, place))
            at = at + lengths
        for place in self._fixed:
            values = np.ascontiguousarray(records[f"c{place}"]).astype(self._codecs[place].dtype, copy=False)
            columns[place] = self._codecs[place].column(values, self._mask(valid, place))
        for place in self._wide:
            mask = self._mask(valid, place)
            bitmap = None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))
            content = pa.py_buffer(np.ascontiguousarray(records[f"c{place}"]).tobytes())
            columns[place] = pa.Array.from_buffers(self.schema.field(place).type, count, [bitmap, content])
        numbers = {name: records[f"n{place}"].astype(np.int64) for place, name in enumerate(self.numbers)}
        return PageRows(page_of_row, columns, numbers)

    @staticmethod
    def _mask(valid: npt.NDArray[np.bool_] | None, place: int) -> npt.NDArray[np.bool_] | None:
        assert valid is not None
        mask = valid[:, place]
        return None if mask.all() else mask

    def _text(self, place: int, content: Bytes, lengths: Ints, mask: npt.NDArray[np.bool_] | None) -> pa.Array:
        data_type = self.schema.field(place).type
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        bitmap = None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
        if not pt.is_nested(data_type):
            return pa.Array.from_buffers(data_type, len(lengths), buffers)
        return values_of(pa.Array.from_buffers(pa.binary(), len(lengths), buffers), data_type)


def pages_of_key(page: bytes) -> int:
    """Number of pages of a key, by its page 0."""
    return int.from_bytes(page[1:5], "little")


def _places(starts: Ints, counts: Ints, size: int) -> Ints:
    """Places of elements of a size that stand one behind the other, as many as counted, from each start."""
    number = spread(np.zeros(len(starts), np.int64), counts)
    return np.repeat(starts, counts) + size * number


def _gathered(data: Bytes, places: Ints, dtype: str) -> Ints:
    """Numbers that stand at any places."""
    matrix = data[places[:, None] + np.arange(np.dtype(dtype).itemsize)]
    numbers: Ints = np.ascontiguousarray(matrix).reshape(-1).view(dtype).astype(np.int64)
    return numbers
