"""The functions that users implement, under PyFlink's module path: all of ``firesteel.functions.functions``."""

from firesteel.functions import functions
from firesteel.functions.functions import *  # noqa: F403

__all__ = functions.__all__
