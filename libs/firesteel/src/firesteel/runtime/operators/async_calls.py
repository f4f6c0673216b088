"""The asyncio loop of an async operator, in a thread of its own: it runs, retries and cancels the user's coroutines.

The task's thread hands records over with ``call`` and gets results through ``on_done``, which is called on the loop's
thread, so it must be quick and thread-safe.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from firesteel.core.errors import ProgramError
from firesteel.functions.async_functions import AsyncFunction, AsyncRetryStrategy
from firesteel.runtime.operator_base.base import is_iterable, not_iterable
from firesteel.runtime.operator_base.sites import UserCode

__all__ = ["AsyncCalls"]

OnDone = Callable[[Any, "list[Any] | BaseException"], None]


class AsyncCalls(UserCode):
    """Runs ``AsyncFunction.async_invoke`` for many records concurrently.

    Args:
        name: name of the operator.
        function: the user's function.
        timeout: seconds for a record including its retries; None = no limit.
        retry: when and how often to call again; None = never.
        on_done: called with the token given to ``call`` and either the results or the exception; the token is None
            for an exception that belongs to no record.
    """

    def __init__(
        self,
        name: str,
        function: AsyncFunction[Any, Any],
        timeout: float | None,
        retry: AsyncRetryStrategy[Any] | None,
        on_done: OnDone,
    ) -> None:
        self.name = name
        self._function, self._timeout, self._on_done = function, timeout, on_done
        self._retry = retry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled = self._stopping = False
        self._thread = threading.Thread(target=self._main, name=f"firesteel-async {name}", daemon=True)

    def start(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        try:
            self._thread.start()
        except BaseException:
            self._loop = None
            loop.close()
            raise

    def do(self, action: Callable[[], Any]) -> None:
        """Call ``action`` on the loop, where asyncio clients can be created, and await its result if it is awaitable.

        Raises:
            BaseException: whatever ``action`` raised.
        """
        self._wait(self._do(action))

    async def _do(self, action: Callable[[], Any]) -> None:
        result = action()
        if inspect.isawaitable(result):
            await result

    def call(self, token: Any, value: Any) -> None:
        """Start ``async_invoke`` for a record; called from the task's thread."""
        loop = self._loop
        assert loop is not None
        loop.call_soon_threadsafe(self._begin, token, value)

    def cancel(self) -> None:
        """Cancel all tasks of the loop, including those that the function created, and wait until they have ended."""
        if self._loop is not None:
            self._wait(self._cancel())

    def stop(self) -> None:
        """Stop the loop and join its thread. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is not None:
            self._stopping = True
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    def _wait(self, coroutine: Any) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    async def _cancel(self) -> None:
        self._cancelled = True
        current = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not current]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _main(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        try:
            while not self._stopping:
                self._run_loop(loop)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            asyncio.set_event_loop(None)
            loop.close()

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until it stops. If user code stopped it, the task fails, and the caller runs the loop again:
        the function still has to be closed on it.
        """
        try:
            loop.run_forever()
            if not self._stopping:
                raise ProgramError("the function has stopped the asyncio loop that its calls run on")
        except BaseException as error:  # from a task that the function created: SystemExit, for one, ends the loop
            self._on_done(None, error)

    # -- on the loop

    def _begin(self, token: Any, value: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._run(token, value))
        self._tasks.add(task)  # the loop itself holds only weak references to tasks
        task.add_done_callback(self._tasks.discard)

    async def _run(self, token: Any, value: Any) -> None:
        try:
            results = await self._uncancelled(value)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_done(token, error)
        else:
            self._on_done(token, results)

    async def _uncancelled(self, value: Any) -> list[Any]:
        """Like ``_results``, but a cancellation that we did not start is an error; else the record would never end."""
        try:
            return await self._results(value)
        except asyncio.CancelledError as error:
            if self._cancelled:
                raise
            raise ProgramError(
                "async_invoke() raised CancelledError although nobody has cancelled the call: something that it waits "
                "for was cancelled; catch it there"
            ) from error

    async def _results(self, value: Any) -> list[Any]:
        """Invoke the function with retries; once the record's time is over, ask its ``timeout`` for the results."""
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                return self._checked("async_invoke", await self._with_retries(value))
        except TimeoutError:
            if not limit.expired():  # the function raised it itself
                raise
        results: Any = self._function.timeout(value)
        if inspect.isawaitable(results):
            results = await results
        return self._checked("timeout", results)

    async def _with_retries(self, value: Any) -> Any:
        retry, attempt = self._retry, 1
        while True:
            try:
                results = await self._function.async_invoke(value)
            except Exception as error:
                if retry is None or not _matches(retry.get_retry_predicate().exception_predicate(), error):
                    raise
                if not retry.can_retry(attempt):
                    raise
            else:
                if (
                    retry is None
                    or not _matches(retry.get_retry_predicate().result_predicate(), results)
                    or not retry.can_retry(attempt)
                ):
                    return results
            await asyncio.sleep(max(0, retry.get_backoff_time_millis(attempt)) / 1000)
            attempt += 1

    @staticmethod
    def _checked(method: str, results: Any) -> list[Any]:
        """The results as a list; raises ``ProgramError`` if the function returned something else than an iterable."""
        if results is None:
            return []
        if not is_iterable(results) or isinstance(results, (str, bytes)):
            raise not_iterable(method, results)
        return list(results)


def _matches(predicate: Callable[[Any], bool] | None, subject: Any) -> bool:
    if predicate is None:
        return False
    answer = predicate(subject)
    if inspect.isawaitable(answer):
        raise ProgramError("a retry predicate is an ordinary function, not a coroutine function")
    return bool(answer)
