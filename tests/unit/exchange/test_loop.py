from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from firesteel.core.clock import SystemClock
from firesteel.runtime.loop.loop import TaskLoop
from tests.unit.exchange.support import ManualClock, run_idle


class Task:
    """Runs a function for each step, as often as it was told."""

    def __init__(self, steps: int, function: Callable[[], None]) -> None:
        self.left, self.function = steps, function
        self.errors: list[BaseException] = []

    @property
    def runnable(self) -> bool:
        return self.left > 0

    @runnable.setter
    def runnable(self, value: bool) -> None:
        raise AssertionError("the task keeps it")

    def step(self) -> None:
        self.left -= 1
        self.function()

    def on_error(self, error: BaseException) -> None:
        self.errors.append(error)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def loop(clock: ManualClock) -> Iterator[TaskLoop]:
    task_loop = TaskLoop(clock)
    yield task_loop
    task_loop.close()


def test_runnable_tasks_take_turns(loop: TaskLoop) -> None:
    order: list[str] = []
    for name, steps in (("a", 3), ("b", 1), ("sleeping", 0), ("c", 3)):
        loop.add_task(Task(steps, lambda name=name: order.append(name)))  # type: ignore[misc]
    run_idle(loop)
    assert order == ["a", "b", "c", "a", "c", "a", "c"]


def test_a_removed_task_is_not_stepped_and_the_others_keep_their_turn(loop: TaskLoop) -> None:
    order: list[str] = []
    tasks = {name: Task(2, lambda name=name: order.append(name)) for name in "abc"}  # type: ignore[misc]
    for task in tasks.values():
        loop.add_task(task)
    loop.run_once(block=False)
    loop.remove_task(tasks["a"])
    loop.remove_task(tasks["a"])
    run_idle(loop)
    assert order == ["a", "b", "c", "b", "c"]


def test_a_task_removed_by_a_callback_of_the_same_pass_is_not_stepped(loop: TaskLoop) -> None:
    task = Task(1, lambda: pytest.fail("was stepped"))
    loop.add_task(task)
    loop.call_soon(lambda: loop.remove_task(task))
    run_idle(loop)


def test_posted_calls_run_in_order_and_before_the_next_step(loop: TaskLoop) -> None:
    order: list[str] = []

    def step() -> None:
        order.append("step")
        loop.call_soon(lambda: order.append("1"))
        loop.call_soon(lambda: order.append("2"))

    loop.add_task(Task(2, step))
    run_idle(loop)
    assert order == ["step", "1", "2", "step", "1", "2"]


def test_a_call_that_posts_itself_does_not_starve_tasks(loop: TaskLoop) -> None:
    steps: list[int] = []

    def again() -> None:
        loop.call_soon(again)

    again()
    loop.add_task(Task(3, lambda: steps.append(1)))
    for _ in range(3):
        loop.run_once(block=False)
    assert len(steps) == 3


def test_timers_run_in_order_of_time_and_not_before_it(loop: TaskLoop, clock: ManualClock) -> None:
    order: list[str] = []
    loop.call_later(0.2, lambda: order.append("late"))
    loop.call_later(0.1, lambda: order.append("early"))
    loop.call_later(0.1, lambda: order.append("early, set later"))
    cancelled = loop.call_later(0.1, lambda: order.append("cancelled"))
    cancelled.cancel()
    cancelled.cancel()
    clock.now += 0.09
    run_idle(loop)
    assert order == []
    clock.now += 0.02
    run_idle(loop)
    assert order == ["early", "early, set later"]
    clock.now += 0.1
    run_idle(loop)
    assert order == ["early", "early, set later", "late"]


def test_a_timer_that_sets_itself_for_now_lets_the_loop_go_on(loop: TaskLoop) -> None:
    fired: list[int] = []

    def again() -> None:
        fired.append(1)
        loop.call_later(0, again)

    again()
    loop.run_once(block=False)
    assert len(fired) == 2


def test_cancelled_timers_are_thrown_out(loop: TaskLoop, clock: ManualClock) -> None:
    calls: list[int] = []
    loop.call_later(5, lambda: calls.append(1))
    for _ in range(10_000):
        loop.call_later(1000, lambda: None).cancel()
    assert len(loop._timers) < 200
    clock.now += 6
    run_idle(loop)
    assert calls == [1]


def test_an_exception_of_a_step_goes_to_its_task_and_the_loop_goes_on(loop: TaskLoop) -> None:
    def fail() -> None:
        raise SystemExit("a user's function called sys.exit")

    other: list[int] = []
    task = Task(2, fail)
    loop.add_task(task)
    loop.add_task(Task(2, lambda: other.append(1)))
    run_idle(loop)
    assert [type(error) for error in task.errors] == [SystemExit, SystemExit]
    assert other == [1, 1]


def test_running_names_the_task_whose_step_is_under_way(loop: TaskLoop) -> None:
    seen: list[object] = []
    task = Task(1, lambda: seen.append(loop.running))
    loop.add_task(task)
    loop.call_soon(lambda: seen.append(loop.running))
    run_idle(loop)
    assert seen == [None, task]
    assert loop.running is None


def test_an_exception_of_a_callback_goes_to_the_loops_handler(loop: TaskLoop) -> None:
    errors: list[BaseException] = []
    loop.on_error = errors.append
    ran: list[int] = []

    def fail() -> None:
        raise ValueError("callback")

    loop.call_soon(fail)
    loop.call_soon(lambda: ran.append(1))
    run_idle(loop)
    assert [str(error) for error in errors] == ["callback"]
    assert ran == [1]


def test_without_a_handler_it_leaves_run(loop: TaskLoop) -> None:
    def fail() -> None:
        raise ValueError("callback")

    loop.call_soon(fail)
    with pytest.raises(ValueError, match="callback"):
        loop.run()


def test_sockets_are_served_while_a_task_is_always_runnable(loop: TaskLoop) -> None:
    left, right = socket.socketpair()
    with left, right:
        received: list[bytes] = []
        loop.register(right, lambda: received.append(right.recv(10)), None)
        loop.add_task(Task(10, lambda: None))
        loop.run_once(block=False)
        left.send(b"x")
        loop.run_once(block=False)
        assert received == [b"x"]
        loop.unregister(right)
        loop.unregister(right)


def test_a_socket_unregistered_by_its_first_callback_gets_no_second(loop: TaskLoop) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.send(b"x")
        loop.register(right, lambda: loop.unregister(right), lambda: pytest.fail("it was unregistered"))
        run_idle(loop)


def test_modify_changes_what_is_called(loop: TaskLoop) -> None:
    left, right = socket.socketpair()
    with left, right:
        seen: list[str] = []

        def writable() -> None:
            seen.append("writable")
            loop.modify(right, lambda: seen.append("readable"), None)

        loop.register(right, None, writable)
        run_idle(loop)
        left.send(b"x")
        loop.run_once(block=False)
        assert seen == ["writable", "readable"]
        loop.unregister(right)


def test_another_thread_wakes_a_loop_that_sleeps() -> None:
    loop = TaskLoop(SystemClock())
    ran: list[str] = []
    runner = threading.Thread(target=loop.run)
    runner.start()
    for name in ("first", "second"):
        done = threading.Event()
        loop.call_soon_threadsafe(lambda name=name: ran.append(name))  # type: ignore[misc]
        loop.call_soon_threadsafe(done.set)
        assert done.wait(10)
    loop.stop()
    runner.join(10)
    assert not runner.is_alive()
    assert ran == ["first", "second"]
    loop.close()
    loop.call_soon_threadsafe(lambda: None)  # too late, and no error


@pytest.mark.parametrize("seconds", [3e6, 1e10, float("inf")])
@pytest.mark.parametrize("precise", [True, False])
def test_a_timer_may_be_further_away_than_a_system_call_can_wait(seconds: float, precise: bool) -> None:
    loop = TaskLoop(SystemClock())
    if not precise:
        loop._precise = None  # as when select() can't take the descriptor of the selector
    timer = loop.call_later(seconds, lambda: None)
    waker = threading.Timer(0.01, loop.stop)
    waker.start()
    try:
        loop.run()
        assert timer.pending
    finally:
        waker.join()
        loop.close()


def test_calls_of_many_threads_all_arrive() -> None:
    loop = TaskLoop(SystemClock())
    count: list[int] = []
    started = threading.Barrier(4)

    def post() -> None:
        started.wait()
        for number in range(500):
            loop.call_soon_threadsafe(lambda number=number: count.append(number))  # type: ignore[misc]

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(count) < 2000:
        loop.run_once()
    for thread in threads:
        thread.join()
    loop.close()
    assert len(count) == 2000
