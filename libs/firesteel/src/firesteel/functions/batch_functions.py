"""Functions over whole batches of keyed streams, with state that is read and written for many keys at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from firesteel.functions.functions import Function, MapFunction
from firesteel.functions.state import ValueStateDescriptor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["BatchValueState", "ChangelogMapFunction", "KeyedBatchFunction"]

Keys: TypeAlias = "pa.Array | Sequence[Any]"
"""A column of keys (an array, or a sequence that Arrow can convert), or a tuple of columns for keys of several."""


class BatchValueState(ABC):
    """One value for each key, read and written for many keys at once.

    The keys are those of the current batch, or others that the subtask owns; a key may occur more than once.

    Examples:
        ```python
        import pyarrow as pa

        from firesteel.common import Types
        from firesteel.datastream.functions import KeyedBatchFunction
        from firesteel.datastream.state import ValueStateDescriptor


        class Change(KeyedBatchFunction):
            def open(self, runtime_context):
                self.last_price = runtime_context.get_state(ValueStateDescriptor("last price", Types.DOUBLE()))

            def process_batch(self, batch, ctx):
                before = self.last_price.get(ctx.keys)  # null where a key has none
                self.last_price.put(ctx.keys, batch["price"])
                return pa.record_batch([batch["item"], batch["price"], before], ["item", "price", "before"])
        ```
    """

    @abstractmethod
    def get(self, keys: Keys) -> pa.Array:
        """Return the value of each key, with the declared type; null where a key has none.

        Raises:
            ProgramError: another subtask owns a key, or the keys do not have the stream's key type.
        """

    @abstractmethod
    def put(self, keys: Keys, values: Any) -> None:
        """Write the value of each key; of equal keys the last one counts, and null clears the value.

        Args:
            keys: the keys, as for ``get``.
            values: a column of the same length (``pyarrow`` or ``numpy`` array, or list), or one value for all.

        Raises:
            ProgramError: as for ``get``; or there are more or fewer values than keys.
            TypeMismatchError: a value does not fit the declared type.
        """

    @abstractmethod
    def clear(self, keys: Keys) -> None:
        """Clear the values of keys. A key without any value takes no memory.

        Raises:
            ProgramError: as for ``get``.
        """


Changes: TypeAlias = "tuple[pa.RecordBatch, npt.NDArray[np.int8] | None, npt.NDArray[np.int64] | None]"
"""Rows, the kind of each (0 insert, 1 update-before, 2 update-after, 3 delete; None = all are inserted), timestamps."""


class ChangelogMapFunction(MapFunction["pa.RecordBatch", "pa.RecordBatch"]):
    """A function for ``map_batches`` that reads, sets and removes the kinds of rows.

    Kinds can't be seen by functions of rows: a source that gets changes from outside makes them of a column, and a sink
    that writes changes turns them into one.

    Examples:
        ```python
        from firesteel.datastream.functions import ChangelogMapFunction


        class WithoutDeletes(ChangelogMapFunction):
            def map_changes(self, batch, kinds, timestamps):
                if kinds is None:
                    return batch, None, timestamps
                kept = (kinds != 3).nonzero()[0]
                return batch.take(kept), kinds[kept], None if timestamps is None else timestamps[kept]
        ```
    """

    @abstractmethod
    def map_changes(
        self,
        batch: pa.RecordBatch,
        kinds: npt.NDArray[np.int8] | None,
        timestamps: npt.NDArray[np.int64] | None,
    ) -> Changes:
        """Return other rows with their kinds and timestamps; both are None or as many as rows."""

    def map(self, value: pa.RecordBatch) -> pa.RecordBatch:
        """Map rows that are all inserted."""
        return self.map_changes(value, None, None)[0]


class KeyedBatchFunction(Function):
    """A function over the batches of a keyed stream.

    In ``open``, ``runtime_context.get_state(ValueStateDescriptor(...))`` gives a ``BatchValueState``.

    Examples:
        ```python
        import pyarrow as pa

        from firesteel.common import Types
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.functions import KeyedBatchFunction
        from firesteel.datastream.state import ValueStateDescriptor


        class Change(KeyedBatchFunction):
            def open(self, runtime_context):
                self.last_price = runtime_context.get_state(ValueStateDescriptor("last price", Types.DOUBLE()))

            def process_batch(self, batch, ctx):
                before = self.last_price.get(ctx.keys)  # null where a key has none
                self.last_price.put(ctx.keys, batch["price"])
                return pa.record_batch([batch["item"], before], ["item", "before"])


        price = Types.ROW_NAMED(["item", "price"], [Types.STRING(), Types.DOUBLE()])
        change = Types.ROW_NAMED(["item", "before"], [Types.STRING(), Types.DOUBLE()])
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        prices = env.from_collection([("tea", 4.5), ("milk", 1.2)], price)
        print(*prices.key_by("item").process_batches(Change(), change).execute_and_collect())
        ```

        ```text
        Row(item='tea', before=None) Row(item='milk', before=None)
        ```
    """

    class Context(ABC):
        """Information about the current batch, for ``process_batch``."""

        @property
        @abstractmethod
        def keys(self) -> Any:
            """Keys of the rows, in the form that state takes: a column, or a tuple of columns."""

        @property
        @abstractmethod
        def timestamps(self) -> npt.NDArray[np.int64] | None:
            """Timestamps of the rows in epoch milliseconds; None if they have none."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark in epoch milliseconds; -2**63 before the first one."""

        @abstractmethod
        def get_state(self, state_descriptor: ValueStateDescriptor) -> BatchValueState:
            """Return the state of this name, for functions without ``open``: the same object each time.

            Raises:
                ProgramError: another type of state has this name, or no column can hold values of the type.
            """

    @abstractmethod
    def process_batch(
        self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context
    ) -> pa.RecordBatch | Iterator[pa.RecordBatch] | None:
        """Return the results for a batch: one batch, several, or None.

        A batch contains rows of some of the subtask's keys, in their order; their number is not defined.
        """
