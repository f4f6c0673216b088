"""Polls a reader that is written for asyncio, in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from firesteel.core.errors import ProgramError
from firesteel.functions.source import END, AsyncSourceReader, NeedSplits, Split, Wait

HAND_OVER: Final = 2
"""Batches that a reader on asyncio may be ahead, as in Flink."""


def asks_in_vain(reader: object) -> ProgramError:
    """The error for a reader that wants splits although it was told that there are none."""
    return ProgramError(
        f"{type(reader).__name__} asks for splits after it was told that no more come; poll() has to return END then"
    )


def _cancelled(reader: object, error: BaseException) -> ProgramError:
    failure = ProgramError(
        f"poll() of {type(reader).__name__} raised CancelledError although nobody has cancelled it: something that it "
        "waits for was cancelled; catch it there"
    )
    failure.__cause__ = error
    return failure


async def _awaited(method: Callable[[], object]) -> None:
    result = method()
    if inspect.isawaitable(result):
        await result


class AsyncPolls:
    """Polls a reader on an asyncio loop in a thread of its own, at most ``HAND_OVER`` batches ahead."""

    def __init__(self, reader: AsyncSourceReader[Any], max_records: int, notify: Callable[[], None], name: str) -> None:
        self._reader, self._max, self._notify = reader, max_records, notify
        self._most = max_records
        self._answers: deque[Any] = deque()
        self._loop = asyncio.new_event_loop()
        self._again = asyncio.Event()
        self._room = asyncio.Event()
        self._no_more = False
        self._stopping = self._over = False
        self._thread = threading.Thread(target=self._main, name=f"firesteel-reader {name}", daemon=True)

    def start(self) -> None:
        """Open the reader and begin."""
        self._thread.start()

    def take(self, most: int) -> Any:
        """The next answer, or None; raises what the reader raised. From now on it is asked for ``most`` at once."""
        self._most = min(self._max, most)
        if not self._answers:
            return None
        answer = self._answers.popleft()
        self.call(self._room.set)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def wake(self) -> None:
        """Poll again, if the reader waits."""
        self.call(self._again.set)

    def add_splits(self, splits: Sequence[Split], no_more: bool) -> None:
        """Hand them to the reader on its loop."""
        self.call(lambda: self._add(splits, no_more))

    def _add(self, splits: Sequence[Split], no_more: bool) -> None:
        try:
            if splits:
                self._reader.add_splits(splits)
            if no_more and not self._no_more:
                self._no_more = True
                self._reader.no_more_splits()
        except BaseException as error:  # the user's reader: the task raises it
            self._give(error)
        self._again.set()

    def close(self) -> None:
        """Cancel the poll, close the reader, end the thread."""
        self._stopping = True
        if self._thread.ident is None:
            try:
                self._loop.run_until_complete(_awaited(self._reader.close))
            finally:
                self._loop.close()
            return
        self.call(self._cancel)
        self._thread.join()

    def _cancel(self) -> None:
        if not self._over:  # the reader's close is let through
            for task in asyncio.all_tasks(self._loop):
                task.cancel()

    def call(self, callback: Callable[[], None]) -> None:
        """Call something on the reader's loop."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # its loop is closed: the thread has ended
            pass

    def _give(self, answer: Any) -> None:
        self._answers.append(answer)
        self._notify()

    def _main(self) -> None:
        try:
            self._run(self._polls)
            self._over = True
            self._run(lambda: _awaited(self._reader.close))
        finally:
            self._loop.close()

    def _run(self, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run it to its end; what it raises is an answer."""
        task = self._loop.create_task(self._answering(what))
        while not task.done():
            try:
                self._loop.run_until_complete(task)
            except asyncio.CancelledError:
                break  # before it began
            except (
                BaseException
            ) as error:  # of another task, which the reader made: SystemExit and the like end the loop
                self._give(error)

    async def _answering(self, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await what()
        except asyncio.CancelledError as error:
            if not self._stopping:
                self._give(_cancelled(self._reader, error))
        except BaseException as error:  # the user's reader: the task raises it
            self._give(error)

    async def _polls(self) -> None:
        await _awaited(self._reader.open)
        while not self._stopping:
            while len(self._answers) >= HAND_OVER:
                self._room.clear()
                await self._room.wait()
            self._again.clear()  # before the poll: what happens during it must not be missed
            answer = await self._reader.poll(self._most)
            if isinstance(answer, Wait):
                await self._pause(answer.seconds)
            elif isinstance(answer, NeedSplits):
                if self._no_more:
                    raise asks_in_vain(self._reader)
                self._give(answer)
                await self._again.wait()
            else:
                self._give(answer)
                if answer is END:
                    return

    async def _pause(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._again.wait(), seconds)
        except TimeoutError:
            pass
