"""``DataTypes``: the types of columns, at the place of ``pyflink.table``. There is no Table API in this version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.core.pyflink_names import missing_names
from firesteel.table.types import DataType, DataTypes, RowField, RowType, from_type_info, to_type_info

__all__ = ["DataType", "DataTypes", "RowField", "RowType", "from_type_info", "to_type_info"]

if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__)
