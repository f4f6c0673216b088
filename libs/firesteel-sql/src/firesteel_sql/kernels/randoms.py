"""Functions whose results differ from row to row: RAND, RAND_INTEGER, UUID.

Their first operand is a column of the relation, for the number of its rows only.
"""

from __future__ import annotations

import random
import uuid as uuids
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, kernel

_MULTIPLIER: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1


class JavaRandom:
    """The generator of ``java.util.Random``: equal seeds give Flink's numbers.

    It is a linear congruential generator modulo 2^48. The state after n steps is a product and a sum of the first
    one, so the states of a whole column come from two running products.
    """

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _MULTIPLIER) & _MASK

    def _bits(self, count: int, bits: int) -> npt.NDArray[np.int64]:
        """The highest bits of the next ``count`` states."""
        if not count:
            return np.zeros(0, np.int64)
        with np.errstate(over="ignore"):  # modulo 2^64, of which 2^48 is a divisor
            factors = np.multiply.accumulate(np.full(count, _MULTIPLIER, np.uint64))
            sums = np.add.accumulate(np.concatenate([np.ones(1, np.uint64), factors[:-1]]))
            states = np.bitwise_and(factors * np.uint64(self._state) + np.uint64(0xB) * sums, np.uint64(_MASK))
        self._state = int(states[-1])
        highest: npt.NDArray[np.int64] = np.right_shift(states, np.uint64(48 - bits)).astype(np.int64)
        return highest

    def doubles(self, count: int) -> npt.NDArray[np.float64]:
        """The next numbers from 0 to 1."""
        halves = self._bits(2 * count, 27)
        # nextDouble() takes 26 bits and 27 bits.
        numbers: npt.NDArray[np.float64] = ((halves[0::2] >> 1 << 27) + halves[1::2]).astype(np.float64) / (1 << 53)
        return numbers

    def integer(self, bound: int) -> int:
        """The next whole number below a bound."""
        bits = int(self._bits(1, 31)[0])
        if bound & -bound == bound:
            return (bound * bits) >> 31
        while bits - bits % bound + (bound - 1) >= 1 << 31:
            bits = int(self._bits(1, 31)[0])
        return bits % bound


def _count(column: Any) -> int | None:
    return None if isinstance(column, pa.Scalar) else len(column)


def _as_result(values: Any, count: int | None, data_type: pa.DataType) -> Any:
    column = pa.array(values, data_type)
    return column[0] if count is None else column


def _seed(value: Any) -> int | None:
    """The seed, which is constant: that of the first row; NULL counts as 0."""
    scalar = value if isinstance(value, pa.Scalar) else value[0] if len(value) else None
    return None if scalar is None else scalar.as_py() or 0


@kernel
def rand(call: KernelCall) -> Kernel:
    """``RAND([seed])``: the numbers of a seed go on from batch to batch."""
    generators: list[JavaRandom] = []

    def compute(rows: Any, seed: Any = None) -> Any:
        count = _count(rows)
        if not generators:
            generators.append(JavaRandom(random.getrandbits(48) if seed is None else _seed(seed) or 0))
        return _as_result(generators[0].doubles(1 if count is None else count), count, call.result)

    return compute


@kernel
def rand_integer(call: KernelCall) -> Kernel:
    """``RAND_INTEGER([seed,] bound)``; a bound below 1 is an error."""
    generators: list[JavaRandom] = []

    def compute(rows: Any, *operands: Any) -> Any:
        *seeds, bound = operands
        count = _count(rows)
        if not generators:
            generators.append(JavaRandom(_seed(seeds[0]) or 0 if seeds else random.getrandbits(48)))
        size = 1 if count is None else count
        bounds = [bound.as_py()] * size if isinstance(bound, pa.Scalar) else bound.to_pylist()
        return _as_result([_next(generators[0], limit) for limit in bounds], count, call.result)

    return compute


def _next(generator: JavaRandom, limit: int | None) -> int | None:
    if limit is None:
        return None
    if limit <= 0:
        raise ValueError(f"the bound of RAND_INTEGER has to be positive, not {limit}")
    return generator.integer(limit)


@kernel
def uuid(call: KernelCall) -> Kernel:
    """``UUID()``: random ones, of version 4."""

    def compute(rows: Any) -> Any:
        count = _count(rows)
        return _as_result([str(uuids.uuid4()) for _ in range(1 if count is None else count)], count, call.result)

    return compute
