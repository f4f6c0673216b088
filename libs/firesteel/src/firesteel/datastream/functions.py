"""The functions that users implement, under PyFlink's module path: all of ``firesteel.functions``."""

from typing import TYPE_CHECKING

from firesteel.core.pyflink_names import missing_names
from firesteel.functions import (
    async_functions,
    batch_functions,
    broadcast,
    checkpointed,
    functions,
    join_functions,
    source_function,
    window_functions,
)
from firesteel.functions.async_functions import *  # noqa: F403
from firesteel.functions.batch_functions import *  # noqa: F403
from firesteel.functions.broadcast import *  # noqa: F403
from firesteel.functions.checkpointed import *  # noqa: F403
from firesteel.functions.functions import *  # noqa: F403
from firesteel.functions.join_functions import *  # noqa: F403
from firesteel.functions.source_function import *  # noqa: F403
from firesteel.functions.window_functions import *  # noqa: F403

__all__ = [
    *async_functions.__all__,
    *batch_functions.__all__,
    *broadcast.__all__,
    *checkpointed.__all__,
    *functions.__all__,
    *join_functions.__all__,
    *source_function.__all__,
    *window_functions.__all__,
]

if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__)
