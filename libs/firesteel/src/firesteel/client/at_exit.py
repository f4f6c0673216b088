"""What has to be done at the end of the process."""

from __future__ import annotations

import atexit
import importlib
import threading
from collections.abc import Callable


def before_threads_end(action: Callable[[], None]) -> None:
    """Run it at the end of the process while thread pools still take work; ``atexit`` alone would be too late.

    Such actions run in reverse order, so that of the thread pools has to be registered first: by their import. An
    action may run twice.
    """
    importlib.import_module("concurrent.futures.thread")
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(action)
    atexit.register(action)
