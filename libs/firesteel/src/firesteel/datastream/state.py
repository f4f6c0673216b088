"""State and its descriptors, under PyFlink's module path: all of ``firesteel.functions.state``."""

from firesteel.functions import state
from firesteel.functions.state import *  # noqa: F403

__all__ = state.__all__
