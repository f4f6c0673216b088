"""A watch goes on whatever answers in place of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from firesteel_kubernetes import api
from firesteel_kubernetes.api import JsonObject, Watched

POD = {"metadata": {"name": "pod", "resourceVersion": "8"}}


class Answers:
    """An API server whose first answers come from a proxy."""

    def __init__(self) -> None:
        self.lists: list[JsonObject] = [{"message": "<html>"}, {"metadata": {"resourceVersion": "7"}, "items": []}]
        self.events_of_watches: list[list[Any]] = [[["no object"]], [{"type": "ADDED", "object": POD}]]

    async def listed(self, path: str, query: Mapping[str, str]) -> JsonObject:
        return self.lists.pop(0) if self.lists else {"metadata": {"resourceVersion": "7"}, "items": []}

    async def events(self, path: str, query: Mapping[str, str], heard: Callable[[JsonObject], None]) -> None:
        if not self.events_of_watches:
            await asyncio.Event().wait()
        for event in self.events_of_watches.pop(0):
            heard(event)


def test_a_watch_outlives_answers_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_AGAIN_SECONDS", (0.0,))
    seen: list[list[str]] = []
    server: Any = Answers()

    async def follow() -> None:
        has_pod = asyncio.Event()

        def changed(watched: Watched) -> None:
            seen.append(list(watched.snapshot()))
            if seen[-1] == ["pod"]:
                has_pod.set()

        task = asyncio.ensure_future(Watched(server, "/pods", {}, changed).follow())
        waiting = asyncio.ensure_future(has_pod.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        waiting.cancel()

    asyncio.run(follow())
    assert seen[-1] == ["pod"]
