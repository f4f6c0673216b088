"""State and its descriptors, under PyFlink's module path: all of ``firesteel.functions.state``."""

from typing import TYPE_CHECKING

from firesteel.core.pyflink_names import missing_names
from firesteel.functions import state
from firesteel.functions.state import *  # noqa: F403

__all__ = state.__all__

if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__)
