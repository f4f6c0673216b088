"""Arithmetic of decimal numbers in whole columns gives what Python's does, on both sides of 128 bits."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from firesteel_sql.kernels.decimals import _PYTHON, arithmetic, fit, rounded_or_none
from firesteel_sql.kernels.definition import KernelCall


def random_type(rng: random.Random, most: int) -> pa.DataType:
    precision = rng.randint(1, most)
    return pa.decimal128(precision, rng.randint(0, precision))


def random_numbers(rng: random.Random, data_type: pa.DataType) -> list[Decimal | None]:
    """NULL, the largest number, one that is rounded at its first digit, and any."""
    largest = 10**data_type.precision - 1
    choices = [None, largest, -largest, 5 * 10 ** (data_type.precision - 1), rng.randint(-largest, largest), 0]
    rng.shuffle(choices)
    return [None if number is None else Decimal(number).scaleb(-data_type.scale) for number in choices]


@pytest.mark.parametrize("seed", range(4))
def test_columns_of_decimals_are_computed_exactly_and_rounded(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        left, right, result = random_type(rng, 22), random_type(rng, 22), random_type(rng, 38)
        a, b = random_numbers(rng, left), random_numbers(rng, right)
        for sign in "+-*":
            kernel = arithmetic(KernelCall((left, right), result, {}), sign)
            exact = _PYTHON[sign](result)
            wanted = [None if x is None or y is None else exact(x, y) for x, y in zip(a, b, strict=True)]
            assert kernel(pa.array(a, left), pa.array(b, right)).to_pylist() == wanted, (sign, left, right, result)
        rounded = [None if x is None else rounded_or_none(x, result) for x in a]
        assert fit(pa.array(a, left), result).to_pylist() == rounded, (left, result)
