"""The asyncio loop of an operator, in a thread of its own: runs the user's coroutines, repeats them, ends them.

The task's thread hands records over with ``call`` and learns of results through ``on_done``, which is called on the
loop's thread and has to be quick and safe there.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from firesteel.core.errors import ProgramError
from firesteel.functions.async_functions import AsyncFunction, AsyncRetryStrategy
from firesteel.runtime.operator_base.base import UserCode, is_iterable, not_iterable

__all__ = ["AsyncCalls"]

OnDone = Callable[[Any, "list[Any] | BaseException"], None]


class AsyncCalls(UserCode):
    """Runs ``AsyncFunction.async_invoke`` for records, side by side.

    Args:
        name: of the operator.
        function: the user's.
        timeout: seconds for a record, repetitions included; None = for ever.
        retry: when and how often to call again; None = never.
        on_done: called with the token given to ``call`` and the results, or what was raised; the token is None when
            the loop was ended by something that belongs to no record.
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
        """Start the thread."""
        loop = self._loop = asyncio.new_event_loop()
        try:
            self._thread.start()
        except BaseException:
            self._loop = None
            loop.close()
            raise

    def do(self, what: Callable[[], Any]) -> None:
        """Call something on the loop, where clients of asyncio can be made; what it gives is awaited if it can be.

        Raises:
            BaseException: whatever it raised.
        """
        self._wait(self._do(what))

    async def _do(self, what: Callable[[], Any]) -> None:
        result = what()
        if inspect.isawaitable(result):
            await result

    def call(self, token: Any, value: Any) -> None:
        """Begin with a record; from the task's thread."""
        loop = self._loop
        assert loop is not None
        loop.call_soon_threadsafe(self._begin, token, value)

    def cancel(self) -> None:
        """Cancel what runs, the function's own tasks too, and wait for their end."""
        if self._loop is not None:
            self._wait(self._cancel())

    def stop(self) -> None:
        """End the thread. Idempotent."""
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
        """Run until somebody stops it. If user code does, the task fails; the loop is still needed to close it."""
        try:
            loop.run_forever()
            if not self._stopping:
                raise ProgramError("the function has stopped the asyncio loop that its calls run on")
        except BaseException as error:  # of a task that the function made: SystemExit ends the loop, say
            self._on_done(None, error)

    # -- on the loop

    def _begin(self, token: Any, value: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._run(token, value))
        self._tasks.add(task)  # the loop itself holds tasks weakly only
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
        """``_results``; a cancellation that is not ours is an error, or the record would wait for ever."""
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
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                return self._checked("async_invoke", await self._with_retries(value))
        except TimeoutError:
            if not limit.expired():  # the function's own
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
                if retry is None or not _wants(retry.get_retry_predicate().exception_predicate(), error):
                    raise
                if not retry.can_retry(attempt):
                    raise
            else:
                if (
                    retry is None
                    or not _wants(retry.get_retry_predicate().result_predicate(), results)
                    or not retry.can_retry(attempt)
                ):
                    return results
            await asyncio.sleep(max(0, retry.get_backoff_time_millis(attempt)) / 1000)
            attempt += 1

    @staticmethod
    def _checked(method: str, results: Any) -> list[Any]:
        if results is None:
            return []
        if not is_iterable(results) or isinstance(results, (str, bytes)):
            raise not_iterable(method, results)
        return list(results)


def _wants(predicate: Callable[[Any], bool] | None, subject: Any) -> bool:
    if predicate is None:
        return False
    answer = predicate(subject)
    if inspect.isawaitable(answer):
        raise ProgramError("a retry predicate is an ordinary function, not a coroutine function")
    return bool(answer)
