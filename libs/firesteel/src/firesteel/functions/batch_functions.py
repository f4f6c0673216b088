"""Functions of whole batches on keyed streams, with state that is read and written for many keys at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from firesteel.functions.functions import Function
from firesteel.functions.state import ValueStateDescriptor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["BatchValueState", "KeyedBatchFunction"]

Keys: TypeAlias = "pa.Array | Sequence[Any]"
"""A column of keys: an array, or anything Arrow makes one of; of several columns a tuple of them."""


class BatchValueState(ABC):
    """A value for each key, of many keys at once.

    Keys must be those of the batch at hand, or others that the subtask owns; keys may occur more than once.
    """

    @abstractmethod
    def get(self, keys: Keys) -> pa.Array:
        """The value of each key, of the declared type; null where there is none.

        Raises:
            ProgramError: another subtask owns a key, or the keys are not of the key's type.
        """

    @abstractmethod
    def put(self, keys: Keys, values: Any) -> None:
        """Write the value of each key; of equal keys the last one counts, and null clears.

        Args:
            keys: as for ``get``.
            values: a column of the same length (``pyarrow`` or ``numpy`` array, or list), or one value for all.

        Raises:
            ProgramError: as ``get``, or there are more or fewer values than keys.
            TypeMismatchError: a value does not fit the declared type.
        """

    @abstractmethod
    def clear(self, keys: Keys) -> None:
        """Forget the values of keys. A key without any value takes no memory.

        Raises:
            ProgramError: as ``get``.
        """


class KeyedBatchFunction(Function):
    """A function of the batches of a keyed stream.

    In ``open``, ``runtime_context.get_state(ValueStateDescriptor(...))`` gives a ``BatchValueState``.
    """

    class Context(ABC):
        """What ``process_batch`` may ask about the batch at hand."""

        @property
        @abstractmethod
        def keys(self) -> Any:
            """The keys of the rows as state takes them: a column, or a tuple of columns."""

        @property
        @abstractmethod
        def timestamps(self) -> npt.NDArray[np.int64] | None:
            """Timestamps of the rows in epoch milliseconds; None if they have none."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The watermark in epoch milliseconds; -2**63 if there was none."""

        @abstractmethod
        def get_state(self, state_descriptor: ValueStateDescriptor) -> BatchValueState:
            """The state of a name, for functions without ``open``: the same one each time.

            Raises:
                ProgramError: the name is taken by state of another type, or values of the type have no columns.
            """

    @abstractmethod
    def process_batch(
        self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context
    ) -> pa.RecordBatch | Iterator[pa.RecordBatch] | None:
        """The result of a batch: one, several, or None.

        A batch holds some rows of some of the subtask's keys, in their order; how many is not defined.
        """
