"""Key groups: which subtask owns a key. The arithmetic is Flink's.

A job's keyed state is cut into ``max_parallelism`` groups, and each subtask owns a range of them; changing the
parallelism moves ranges and never a key to another group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from firesteel.common.types import Row
from firesteel.core.call_each import call_each
from firesteel.core.errors import KeyTypeError
from firesteel.graph.key_hash import TOO_DEEP, key_type_error, murmur, stable_hash

if TYPE_CHECKING:
    import numpy
    import numpy.typing

__all__ = [
    "MAX_MAX_PARALLELISM",
    "MIN_DEFAULT_MAX_PARALLELISM",
    "KeyGroupAssigner",
    "default_max_parallelism",
    "key_group_range",
    "operator_index",
]

MIN_DEFAULT_MAX_PARALLELISM = 128
MAX_MAX_PARALLELISM = 32768


def default_max_parallelism(parallelism: int) -> int:
    """Returns the number of key groups for an operator that does not say: 1.5 times its parallelism, rounded up
    to a power of two, between 128 and 32768.
    """
    target = parallelism + parallelism // 2
    power = 1 << max(target - 1, 0).bit_length()
    return min(max(power, MIN_DEFAULT_MAX_PARALLELISM), MAX_MAX_PARALLELISM)


def key_group_range(index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """Returns the first and last key group of a subtask, both included.

    Raises:
        ValueError: not ``0 <= index < parallelism <= max_parallelism``.
    """
    if not 0 <= index < parallelism <= max_parallelism:
        raise ValueError(
            f"There is no subtask {index} at parallelism {parallelism} with maximum parallelism {max_parallelism}: "
            "0 <= index < parallelism <= maximum parallelism must hold."
        )
    first = (index * max_parallelism + parallelism - 1) // parallelism
    last = ((index + 1) * max_parallelism - 1) // parallelism
    return first, last


def operator_index(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Returns the index of the subtask that owns a key group."""
    return key_group * parallelism // max_parallelism


_MANY: Final = 64
"""Number of keys from which on hashing them together in arrays is faster than one by one."""


class _Cache(dict[Any, int]):
    """Channels of the keys seen so far. Equal keys hash equal, so a look-up by equality gives the hash's channel.

    Attributes:
        overflowed: there have been more keys than its capacity.
    """

    def __init__(self, channel_of_group: Sequence[int], capacity: int) -> None:
        super().__init__()
        self._channels = channel_of_group
        self._groups = len(channel_of_group)
        self._capacity = capacity
        self.overflowed = False

    def __missing__(self, key: Any) -> int:
        channel = self._channels[murmur(stable_hash(key)) % self._groups]
        if len(self) >= self._capacity:
            self.clear()
            self.overflowed = True
        self[key] = channel
        return channel


class KeyGroupAssigner:
    """Finds the channel (subtask index) of keys, and remembers the channels of the latest keys.

    If there are more distinct keys than its capacity, batches of keys of a simple type are hashed together instead:
    that takes about as long as looking them up in a large dict, and no memory. Each output of a subtask has an assigner
    of its own, which only the subtask's thread uses.

    Args:
        parallelism: number of channels.
        max_parallelism: number of key groups.
        capacity: number of keys to remember; beyond that all are forgotten.

    Raises:
        ValueError: not ``1 <= parallelism <= max_parallelism``.
    """

    def __init__(self, parallelism: int, max_parallelism: int, capacity: int = 100_000) -> None:
        if not 1 <= parallelism <= max_parallelism:
            raise ValueError(
                f"Parallelism {parallelism} with maximum parallelism {max_parallelism}: "
                "1 <= parallelism <= maximum parallelism must hold."
            )
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self._channels = [operator_index(g, parallelism, max_parallelism) for g in range(max_parallelism)]
        self._cache = _Cache(self._channels, capacity)
        self._look_up = self._cache.__getitem__

    def __call__(self, key: Any) -> int:
        """Returns the channel of a key.

        Raises:
            KeyTypeError: keys of this type are not allowed.
        """
        try:
            return self._look_up(key)
        except KeyTypeError:
            raise
        except (TypeError, RecursionError) as error:
            raise self._unhashable([key], error) from None

    def assign(self, keys: Sequence[Any]) -> list[int]:
        """Returns the channel of each key.

        Raises:
            KeyTypeError: a key's type is not allowed.
        """
        if len(keys) >= _MANY and (self._cache.overflowed or keys[0].__class__ is Row):  # a row hashes itself slowly
            hashed_channels = self._hashed(keys)
            if hashed_channels is not None:
                return hashed_channels
        try:
            channels = list(map(self._look_up, keys))
            if len(channels) != len(keys):  # a key's own __hash__ raised StopIteration, which ends a map() early
                channels = call_each(self._look_up, keys)
            return channels
        except KeyTypeError:
            raise
        except (TypeError, RecursionError) as error:
            raise self._unhashable(keys, error) from None

    def _hashed(self, keys: Sequence[Any]) -> list[int] | None:
        """Channel of each key, from hashes computed in bulk; None if the keys are not all of one simple type."""
        from firesteel.graph.key_hash_columns import groups_of_hashes, hash_values

        hashes = hash_values(keys)
        if hashes is None:
            return None
        return list(map(self._channels.__getitem__, groups_of_hashes(hashes, self.max_parallelism).tolist()))

    def assign_array(self, column: Any) -> numpy.typing.NDArray[numpy.int32]:
        """Returns the channel of each value of a ``pyarrow`` column.

        Raises:
            KeyTypeError: values of this column type can't be keys.
        """
        return self.assign_columns([column])

    def assign_columns(self, columns: Sequence[Any]) -> numpy.typing.NDArray[numpy.int32]:
        """Returns the channel of each key; the keys are the values of one column, or tuples of the values of several.

        Raises:
            KeyTypeError: values of such a column can't be keys.
        """
        import numpy

        from firesteel.graph.key_hash_columns import key_groups_of

        channels = numpy.asarray(self._channels, numpy.int32)
        return numpy.take(channels, key_groups_of(columns, self.max_parallelism))

    @staticmethod
    def _unhashable(keys: Sequence[Any], error: Exception) -> Exception:
        """Find the key that can't be hashed (the cause may sit inside a tuple) and return the error that names it."""
        for key in keys:
            try:
                try:
                    hash(key)
                except TypeError:
                    stable_hash(key)
                    return key_type_error(type(key), str(error))
                if isinstance(error, RecursionError):
                    stable_hash(key)
            except KeyTypeError as refused:
                return refused
            except RecursionError:
                return key_type_error(type(key), TOO_DEEP)
        return error
