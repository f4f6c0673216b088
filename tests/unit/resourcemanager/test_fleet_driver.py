"""Starts of the fleet whose caller is gone."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any, cast

from firesteel.core.errors import FleetError
from firesteel.protocol.fleet import Fleet
from firesteel_resourcemanager.fleet_driver import FleetDriver


class StoppedWhileItStarts:
    """A fleet as Ctrl-C finds it: its start ends with an error once it was stopped."""

    def __init__(self) -> None:
        self.begun, self.stopped = threading.Event(), threading.Event()

    def start(self) -> None:
        self.begun.set()
        assert self.stopped.wait(10)
        raise FleetError("The fleet was stopped while it started.")


def test_a_start_that_fails_behind_its_cancelled_caller_is_no_complaint_of_asyncio() -> None:
    fleet, complaints = StoppedWhileItStarts(), list[dict[str, Any]]()

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        driver = FleetDriver(cast(Fleet, fleet), lambda: None)
        start = asyncio.create_task(driver.start())
        await asyncio.to_thread(fleet.begun.wait, 10)
        start.cancel()
        await asyncio.wait([start])
        fleet.stopped.set()
        assert driver._starting is not None
        await asyncio.wait([driver._starting])

    asyncio.run(story())
    gc.collect()
    assert complaints == []
