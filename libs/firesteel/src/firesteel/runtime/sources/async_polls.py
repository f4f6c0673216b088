"""Polls a reader that is written for asyncio, on a loop in a thread of its own."""

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
"""Batches by which a reader may be ahead of its task, as in Flink (``source.reader.element.queue.capacity``)."""


def asks_in_vain(reader: object) -> ProgramError:
    """The error for a reader that requests splits after it was told that no more come."""
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
    """Polls a reader in a thread, at most ``HAND_OVER`` batches ahead; the task's thread takes the answers.

    Args:
        reader: the reader.
        max_records: most records of a poll.
        notify: called, on the reader's thread, when there is an answer.
        name: name of the source.
    """

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
        self._thread.start()

    def take(self, most: int) -> Any:
        """Take the next answer of the reader, or None; raises what the reader raised.

        Args:
            most: most records of the following polls.
        """
        self._most = min(self._max, most)
        if not self._answers:
            return None
        answer = self._answers.popleft()
        self.call(self._room.set)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def wake(self) -> None:
        """Poll again now, if the reader has returned ``Wait`` or requested splits."""
        self.call(self._again.set)

    def add_splits(self, splits: Sequence[Split], no_more: bool) -> None:
        """Hand splits to the reader, on its loop."""
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
        """Cancel the poll, close the reader, and join the thread."""
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
        if not self._over:  # not the ``close`` of the reader, which must run to its end
            for task in asyncio.all_tasks(self._loop):
                task.cancel()

    def call(self, callback: Callable[[], None]) -> None:
        """Call something on the reader's loop."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed, because the thread has ended
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

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine to its end; what it raises becomes an answer."""
        task = self._loop.create_task(self._answering(work))
        while not task.done():
            try:
                self._loop.run_until_complete(task)
            except asyncio.CancelledError:
                break  # the task was cancelled before it began
            # Raised by another task, which the reader has created: SystemExit and the like end the loop.
            except BaseException as error:
                self._give(error)

    async def _answering(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
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
            self._again.clear()  # before the poll, so that a wake-up during the poll is not missed
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
