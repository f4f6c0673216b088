"""A leader that is frozen in the middle of a write holds nobody up, and its write is refused when it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.jobs import StoredEnd
from firesteel.ha.services import DISPATCHER, of_job
from firesteel.service.leaders import Candidate

JOB = "ab" * 16
LONGEST_PAUSE = 5.0
"""Seconds for which the event loop may stand still on a machine that is busy; one that waits does so for ever."""
LEADER = """
import os, signal, sys
from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.core.errors import FencedError
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.jobs import StoredEnd

directory, component, job = sys.argv[1:]
services = DirectoryServices(Settings({"high-availability.storageDir": directory}))
leadership = services.campaign(component)
if component == "dispatcher":
    store = services.job_store(leadership)
    store.open(1)
    write = lambda state: store.end(StoredEnd(job, "job", "", 1, {"state": state}))
else:
    store = services.completed_checkpoints(job, leadership)
    write = lambda number: store.add(StoredCheckpoint(number, f"/c/chk-{number}"))
first, second = ("FINISHED", "FAILED") if component == "dispatcher" else (1, 2)
write(first)
replace, rename = os.replace, os.rename

def frozen(how):
    def do(source, target):
        if "cells" in str(target):
            os.kill(os.getpid(), signal.SIGSTOP)
        how(source, target)
    return do

os.replace, os.rename = frozen(replace), frozen(rename)
try:
    write(second)
    print("written")
except FencedError as error:
    print("refused:", error)
os.replace, os.rename = replace, rename
leadership.release()
"""


@pytest.mark.parametrize("component", [of_job(JOB), DISPATCHER])
def test_a_frozen_leader_is_followed_at_once_and_writes_nothing_when_it_wakes_up(
    component: str, tmp_path: Path
) -> None:
    frozen = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(tmp_path), component, JOB], stdout=subprocess.PIPE, text=True
    )
    try:
        _, status = os.waitpid(frozen.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it ended before its second write"
        services = DirectoryServices(Settings({"high-availability.storageDir": str(tmp_path)}))

        async def follow() -> float:
            """As a JobMaster that takes over does, and whoever starts a service."""
            longest = 0.0

            async def tick() -> None:
                nonlocal longest
                while True:
                    before = time.monotonic()
                    await asyncio.sleep(0.01)
                    longest = max(longest, time.monotonic() - before)

            ticking = asyncio.ensure_future(tick())
            assert await asyncio.to_thread(services.campaign, component) is None, "the frozen one has its lock"
            await asyncio.to_thread(services.depose, component)
            candidate = Candidate(services, component)
            leadership = await candidate.lead()
            await candidate.announce("http://next:1", "token")
            if component == DISPATCHER:
                store = services.job_store(leadership)
                contents = await asyncio.to_thread(store.open, 2)
                assert [end.archive for end in contents.ends] == [{"state": "FINISHED"}]
                await asyncio.to_thread(store.end, StoredEnd("cd" * 16, "other", "", 3, {"state": "CANCELED"}))
            else:
                checkpoints = services.completed_checkpoints(JOB, leadership)
                assert await asyncio.to_thread(checkpoints.all) == [StoredCheckpoint(1, "/c/chk-1")]
                await asyncio.to_thread(checkpoints.add, StoredCheckpoint(3, "/c/chk-3"))
            frozen.send_signal(signal.SIGCONT)
            said, _ = await asyncio.to_thread(frozen.communicate)
            assert said.startswith("refused:"), said
            await candidate.check()
            if component == DISPATCHER:
                assert store.archive(JOB) == {"state": "FINISHED"}
            else:
                assert [entry.checkpoint_id for entry in checkpoints.all()] == [1, 3]
            await candidate.give_up()  # on the event loop
            ticking.cancel()
            return longest

        longest = asyncio.run(asyncio.wait_for(follow(), 100))
        assert longest < LONGEST_PAUSE
        services.close()
    finally:
        if frozen.poll() is None:
            frozen.send_signal(signal.SIGCONT)
            frozen.kill()
            frozen.wait()
        assert frozen.stdout is not None
        frozen.stdout.close()
