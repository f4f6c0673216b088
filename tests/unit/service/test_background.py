from __future__ import annotations

import asyncio

from firesteel.service.background import BackgroundTasks


def test_failures_are_told_with_the_name() -> None:
    async def main() -> None:
        heard: list[tuple[str, BaseException]] = []
        tasks = BackgroundTasks("me", lambda name, error: heard.append((name, error)))

        async def bad() -> None:
            raise KeyError("x")

        tasks.spawn(bad(), "bad one")
        assert await tasks.drain(1)
        assert [(n, type(e)) for n, e in heard] == [("me: bad one", KeyError)]
        await tasks.close()

    asyncio.run(main())


def test_drain_waits_for_tasks_that_start_meanwhile_and_gives_up_in_time() -> None:
    async def main() -> None:
        tasks = BackgroundTasks("me")
        done: list[int] = []
        gate = asyncio.Event()

        async def second() -> None:
            done.append(2)

        async def first() -> None:
            done.append(1)
            tasks.spawn(second(), "second")

        tasks.spawn(first(), "first")
        assert await tasks.drain(1)
        assert done == [1, 2]
        tasks.spawn(gate.wait(), "endless")
        assert tasks.names() == ["me: endless"]
        assert not await tasks.drain(0.0)
        await tasks.close()
        assert len(tasks) == 0

    asyncio.run(main())


def test_nothing_starts_after_close() -> None:
    async def main() -> None:
        tasks = BackgroundTasks("me")
        await tasks.close()

        async def never() -> None:
            raise AssertionError("ran")

        assert tasks.spawn(never(), "never") is None

    asyncio.run(main())
