"""The host's side of the template process, without one."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import pytest

from firesteel_jobmaster.template_process import TemplateProcess


class NoProcess:
    """A process that is there, and has ended when somebody asks."""

    pid, returncode = 1, -9

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode

    def kill(self) -> None:
        pass


def test_a_system_without_room_for_a_process_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [NoProcess(), OSError("Cannot allocate memory"), OSError("no room"), NoProcess()]
    started = asyncio.Event()

    def popen(*arguments: Any, **options: Any) -> Any:
        answer = answers.pop(0)
        if not answers:
            started.set()
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(subprocess, "Popen", popen)

    async def main() -> None:
        template = TemplateProcess(lambda *_: None)
        template._pause = 0.0
        template.attach()
        template.replace("is to be killed here")
        await started.wait()
        assert template.generation == 2
        await template.close()

    asyncio.run(asyncio.wait_for(main(), 60))
