"""What the Dispatcher asks JobMasters."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from firesteel.core.clock import SystemClock
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.details import JobDetailsCache
from tests.unit.dispatcher.test_core import at, submit_and_start


def test_a_jobmaster_that_is_lost_before_a_question_begins_is_not_asked() -> None:
    """The Dispatcher ended by it: a question that fails is a bug of its own."""

    async def scenario() -> None:
        core, questions = DispatcherCore(), list[asyncio.Task[None]]()
        submit_and_start(core, takes_over=True)

        def spawn(question: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
            questions.append(asyncio.get_running_loop().create_task(question, name=name))
            core.jobmaster_lost("j", "its process is gone", at(1))
            return questions[-1]

        nothing: Any = None
        details = JobDetailsCache(
            core, SystemClock(), 0.0, 5.0, nothing, nothing, spawn, nothing, lambda: at(1), nothing, nothing
        )
        await details.refresh()
        (question,) = questions
        assert core.job("j").jobmaster is None
        await question

    asyncio.run(scenario())
