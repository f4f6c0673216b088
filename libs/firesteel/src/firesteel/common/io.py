"""Input formats, for ``StreamExecutionEnvironment.create_input``. PyFlink's name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from firesteel.common.typeinfo import TypeInformation

__all__ = ["InputFormat"]


class InputFormat(ABC):
    """Reads records from an external system; an older interface of sources."""

    @abstractmethod
    def source(self) -> Any:
        """Returns the ``firesteel.functions.source.Source`` that reads the records."""

    def get_produced_type(self) -> TypeInformation | None:
        """Returns the type of the records; None = any Python object."""
        return None
