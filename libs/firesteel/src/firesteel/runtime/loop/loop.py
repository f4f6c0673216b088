"""The one loop of a slot's main thread: sockets, timers, calls from other threads, and the steps of all tasks.

One pass of the loop runs the posted calls, the sockets that are ready, the timers that are due, and one step of one
runnable task, in turn. So whatever a step wrote leaves the process right after it, and a peer's data waits for one
step at most. Sockets come before timers: after a step that took a minute, what a timer waited for may have arrived.
While a task is runnable the sockets are looked at without waiting, before each step: a look takes one microsecond
(measured), a step at least ten. With nothing to do the loop sleeps: an idle slot takes no CPU.
"""

from __future__ import annotations

import heapq
import logging
import select
import selectors
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from firesteel.core.clock import Clock
from firesteel.core.forks import ForkAware, closed_in_children, end_if_child, tell_of_forks

logger = logging.getLogger(__name__)
Callback = Callable[[], None]
_LONGEST_WAIT: Final = 86_400.0
"""Longest sleep in seconds; ``epoll`` refuses 25 days, ``select`` 300 years, and timers of users lie beyond both."""


class Steppable(Protocol):
    """A task: the loop calls ``step`` again and again while ``runnable`` is true."""

    runnable: bool
    """Set by the task, on the loop's thread; other threads change it through ``TaskLoop.call_soon_threadsafe``."""

    def step(self) -> None:
        """Do a bounded amount of work: about one batch, or 2 ms."""

    def on_error(self, error: BaseException) -> None:
        """Take what ``step`` raised. A task that stays runnable is stepped again."""


class Handle:
    """A call at a later time; it can be cancelled until it runs."""

    __slots__ = ("_callback", "_loop", "order", "when")

    def __init__(self, loop: TaskLoop, when: float, order: int, callback: Callback) -> None:
        self._loop, self.when, self.order = loop, when, order
        self._callback: Callback | None = callback

    @property
    def pending(self) -> bool:
        """Whether the call neither ran nor was cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """Cancel the call. Idempotent; on the loop's thread only."""
        if self.take() is not None:
            self._loop.forget_timer()

    def take(self) -> Callback | None:
        """Take the callback out; None if it was taken before. Called by the loop."""
        callback, self._callback = self._callback, None
        return callback

    def __lt__(self, other: Handle) -> bool:
        return (self.when, self.order) < (other.when, other.order)


class _EndOfChild:
    """The selector of a loop in a forked child; it ends the child as soon as user code returns to the loop."""

    def select(self, timeout: float | None = None) -> list[Any]:
        end_if_child()
        return []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class TaskLoop(ForkAware):
    """Sockets, timers, posted calls and tasks on one thread.

    All methods but ``call_soon_threadsafe`` and ``stop`` belong to the thread that runs the loop.

    Args:
        clock: measures timers; with a clock that is moved by hand use ``run_once(block=False)``.
        on_error: gets an exception raised by a callback; without it the exception leaves ``run``.

    Attributes:
        running: the task whose ``step`` is under way, else None. A signal handler on this thread may read it to know
            whose code it interrupts.
    """

    def __init__(self, clock: Clock, on_error: Callable[[BaseException], None] | None = None) -> None:
        self.clock = clock
        self.on_error = on_error
        self.running: Steppable | None = None
        self._selector: Any = selectors.DefaultSelector()
        # An epoll or kqueue can itself be waited for with select(), which takes descriptors below 1024 and, other than
        # selectors, has a resolution of microseconds.
        fileno = getattr(self._selector, "fileno", int)()
        self._precise = fileno if 0 < fileno < 1024 else None
        self._ready: deque[Callback] = deque()
        self._timers: list[Handle] = []
        self._cancelled_timers = 0
        self._order = 0
        self._tasks: list[Steppable] = []
        self._next = 0
        self._stopped = False
        self._wake_sent = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        closed_in_children(self._wake_in)
        closed_in_children(self._wake_out)
        tell_of_forks(self)
        self._selector.register(self._wake_in, selectors.EVENT_READ, (self._drain_wake, None))

    def after_fork_in_child(self) -> None:
        """Drop everything in a forked child: sockets and timers belong to the parent, and the child ends here."""
        self._ready.clear()
        self._timers.clear()
        self._precise, self._selector = None, _EndOfChild()

    # -- sockets

    def register(self, fileobj: Any, readable: Callback | None, writable: Callback | None) -> None:
        """Call back whenever the file is ready; level-triggered. At least one of the callbacks must be given."""
        self._selector.register(fileobj, self._events(readable, writable), (readable, writable))

    def modify(self, fileobj: Any, readable: Callback | None, writable: Callback | None) -> None:
        """Change the callbacks of a registered file."""
        self._selector.modify(fileobj, self._events(readable, writable), (readable, writable))

    def unregister(self, fileobj: Any) -> None:
        """Forget a file, before it is closed. Unknown files are ignored."""
        try:
            self._selector.unregister(fileobj)
        except (KeyError, ValueError):
            pass

    @staticmethod
    def _events(readable: Callback | None, writable: Callback | None) -> int:
        return (selectors.EVENT_READ if readable else 0) | (selectors.EVENT_WRITE if writable else 0)

    # -- calls and timers

    def call_soon(self, callback: Callback) -> None:
        """Run a callback in the next pass, before any further step of a task."""
        self._ready.append(callback)

    def call_soon_threadsafe(self, callback: Callback) -> None:
        """Like ``call_soon``, from any thread; wakes the loop. Ignored once the loop is closed."""
        self._ready.append(callback)
        if not self._wake_sent:
            self._wake_sent = True
            try:
                self._wake_out.send(b"\0")
            except OSError:  # the socket is full, so a wake-up is on its way, or closed, so the loop has ended
                pass

    def call_later(self, seconds: float, callback: Callback) -> Handle:
        """Run a callback after this many seconds of the clock, not before."""
        self._order += 1
        handle = Handle(self, self.clock.monotonic() + seconds, self._order, callback)
        heapq.heappush(self._timers, handle)
        return handle

    def forget_timer(self) -> None:
        """Count a cancelled timer; once most timers are cancelled, remove them from the heap. Called by ``Handle``."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 64 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [handle for handle in self._timers if handle.pending]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    # -- tasks

    def add_task(self, task: Steppable) -> None:
        """Step this task from now on, whenever it is runnable."""
        self._tasks.append(task)

    def remove_task(self, task: Steppable) -> None:
        """Stop stepping a task. Unknown tasks are ignored."""
        for position, candidate in enumerate(self._tasks):
            if candidate is task:
                del self._tasks[position]
                if position < self._next:
                    self._next -= 1
                return

    # -- running

    def run(self) -> None:
        self._stopped = False
        while not self._stopped:
            self.run_once()

    def stop(self) -> None:
        """Leave ``run`` after the current pass; from any thread."""
        self.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        """Release the selector and the wake-up sockets; after ``run`` has returned. Idempotent."""
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        self._tasks.clear()
        self._timers.clear()
        self._ready.clear()

    def run_once(self, block: bool = True) -> bool:
        """Do one pass: calls, sockets, timers, then a step of one task.

        Args:
            block: wait for something to do if there is nothing.

        Returns:
            Whether a callback or a step ran.
        """
        done = self._run_ready()
        if self._stopped:
            return done
        busy = done or bool(self._ready) or any(task.runnable for task in self._tasks)
        done |= self._poll(0.0 if busy or not block else self._until_timer())
        if self._timers and not self._stopped:
            done |= self._run_timers(self.clock.monotonic())
        task = None if self._stopped else self._next_task()
        if task is not None:
            self._step(task)
            done = True
        return done

    def _run_ready(self) -> bool:
        ready = self._ready
        count = len(ready)
        for _ in range(count):
            self._call(ready.popleft())
        return count > 0

    def _run_timers(self, now: float) -> bool:
        done = False
        newest = self._order  # timers that are set by these callbacks wait for the next pass
        timers = self._timers
        while timers and timers[0].when <= now and timers[0].order <= newest:
            callback = heapq.heappop(timers).take()
            if callback is not None:
                self._call(callback)
                done = True
            timers = self._timers
        return done

    def _until_timer(self) -> float | None:
        if not self._timers:
            return None
        return min(max(0.0, self._timers[0].when - self.clock.monotonic()), _LONGEST_WAIT)

    def _poll(self, timeout: float | None) -> bool:
        if timeout and self._precise is not None:
            # ``selectors`` rounds up to milliseconds, which is too coarse for paced sources.
            select.select([self._precise], (), (), timeout)
            timeout = 0.0
        events = self._selector.select(timeout)
        for key, mask in events:
            readable, writable = key.data
            if mask & selectors.EVENT_READ and readable is not None:
                self._call(readable)
            if mask & selectors.EVENT_WRITE and writable is not None and self._still(key):
                self._call(writable)
        return bool(events)

    def _still(self, key: selectors.SelectorKey) -> bool:
        """Whether the file is still registered as it was when the selector reported it."""
        try:
            return self._selector.get_key(key.fileobj) is key
        except (KeyError, ValueError):
            return False

    def _next_task(self) -> Steppable | None:
        tasks = self._tasks
        count = len(tasks)
        for offset in range(count):
            position = (self._next + offset) % count
            if tasks[position].runnable:
                self._next = position + 1
                return tasks[position]
        return None

    def _step(self, task: Steppable) -> None:
        self.running = task
        try:
            task.step()
        except BaseException as error:
            end_if_child(error)
            self.running = None
            try:
                task.on_error(error)
            except Exception as second:
                if self.on_error is None:
                    raise
                self.on_error(second)
        finally:
            self.running = None

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as error:
            if self.on_error is None:
                raise
            self.on_error(error)

    def _drain_wake(self) -> None:
        """Empty the socket, and only then let others send again; calls posted until then run in the next pass."""
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            pass
        self._wake_sent = False
