"""What runs inside the Spark task of a slot, around the slot's own function.

Spark starts a task again when its process died, and also when it raised: with the high number of attempts that slots
need, a function that raises would be restarted many times a second, for ever. So nothing may leave this wrapper.
Where Spark puts the task is a matter of its taste once an executor is gone or full, so the place is checked here.
"""

from __future__ import annotations

import json
import os
import pickle
import traceback
from collections.abc import Callable, Iterator

from firesteel.protocol.fleet import SlotLaunch, SlotOutcome

SlotMain = Callable[[Iterator[SlotLaunch]], Iterator[object]]
"""A slot's function. The last `SlotOutcome`, or pair of outcome and text, that it yields is how the slot ended;
anything else that it yields is ignored, and coming to an end means RETURNED."""

EXECUTOR_VARIABLE = "SPARK_EXECUTOR_ID"
"""Environment variable of workers with the id of their executor; not set in local mode."""
_LONGEST_MESSAGE = 8_000


class SlotTask:
    """The function of a slot's one partition: bytes of a launch in, one JSON line about the end out."""

    def __init__(self, slot_main: bytes) -> None:
        """``slot_main``: the pickled function, unpickled in here so that a failure of that is caught as well."""
        self._slot_main = slot_main

    def __call__(self, launches: Iterator[bytes]) -> Iterator[bytes]:
        outcome, message = SlotOutcome.RETURNED, ""
        try:
            here = os.environ.get(EXECUTOR_VARIABLE)
            slot_launches = list(_read(launches))
            for launch in slot_launches:
                if here is not None and launch.executor_id not in ("", here):
                    text = f"it runs on executor {here} and belongs to {launch.executor_id}"
                    yield encode_end(SlotOutcome.MISPLACED, text)
                    return
            main: SlotMain = pickle.loads(self._slot_main)
            for item in main(iter(slot_launches)):
                if isinstance(item, SlotOutcome):
                    outcome, message = item, ""
                elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], SlotOutcome):
                    outcome, message = item[0], str(item[1])
        except BaseException:  # SystemExit and KeyboardInterrupt too: whatever raises is retried
            outcome, message = SlotOutcome.LOST, traceback.format_exc()[-_LONGEST_MESSAGE:]
        yield encode_end(outcome, message)


def encode_end(outcome: SlotOutcome, message: str) -> bytes:
    """How a slot ended, as bytes that the driver reads without unpickling anything."""
    return json.dumps({"outcome": outcome.value, "message": message[-_LONGEST_MESSAGE:]}).encode()


def decode_end(data: bytes) -> tuple[SlotOutcome, str]:
    """Read what `encode_end` wrote."""
    fields = json.loads(data)
    return SlotOutcome(fields["outcome"]), str(fields["message"])


def encode_launch(launch: SlotLaunch) -> bytes:
    """A launch as it travels to the task."""
    return json.dumps(vars(launch)).encode()


def _read(launches: Iterator[bytes]) -> Iterator[SlotLaunch]:
    for data in launches:
        yield SlotLaunch(**json.loads(data))


def probe(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    """A slot function that does nothing: proves that workers start, and makes the daemon load what slots need."""
    yield SlotOutcome.RETURNED
