"""The door to a JobMaster's core: order, crashes, timers; and notes for the next JobMaster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from firesteel.core.errors import FencedError, PeerUnreachableError, ProtocolError
from firesteel.ha.retrieval import Attempts
from firesteel.protocol import messages as m
from firesteel.service.background import BackgroundTasks
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.event_door import PERFORMED_AT_ONCE, EventDoor
from firesteel_jobmaster.handover import HandoverNotes, JobAttempts
from firesteel_jobmaster.performer import InstructionPerformer
from firesteel_jobmaster.slot_calls import SlotCalls
from firesteel_jobmaster.stage_run_link import StageRunLink


class Core:
    """Decides what a test says."""

    is_followed = is_terminal = False

    def __init__(self) -> None:
        self.graph = SimpleNamespace(job_graph=SimpleNamespace(job_id="a" * 32))
        self.stimuli = SimpleNamespace(lines=lambda: ["the last event"])
        self.heard: list[str] = []

    def event(self, *decided: do.Instruction) -> list[do.Instruction]:
        return list(decided)

    def question(self, answer: str) -> tuple[str, list[do.Instruction]]:
        return answer, [do.GoOn()]

    def timer_fired(self, name: str) -> list[do.Instruction]:
        self.heard.append(f"timer {name}")
        return []

    def followed(self, cause: str) -> list[do.Instruction]:
        self.heard.append(f"followed: {cause}")
        return []

    def raises(self) -> list[do.Instruction]:
        raise KeyError("oops")

    def refuses(self) -> list[do.Instruction]:
        raise ProtocolError("message", "it makes no sense")

    def look(self) -> Any:
        yield from ()
        return {"state": "FINISHED"}


class World:
    """A door whose instructions are noted; one that a test names raises."""

    def __init__(self) -> None:
        self.core, self.tasks = Core(), BackgroundTasks("test")
        self.door = EventDoor(self.core, self.tasks.spawn)  # type: ignore[arg-type]
        self.door.performer = self
        self.performed: list[do.Instruction] = []
        self.fails_at: do.Instruction | None = None
        self.is_silent = False
        self.told: list[Mapping[str, Any]] = []
        self.dispatcher: Any = SimpleNamespace(acknowledged=asyncio.Event(), end=self.told.append)

    def perform(self, instruction: do.Instruction) -> None:
        if instruction is self.fails_at:
            raise KeyError("oops")
        self.performed.append(instruction)

    def hurry(self) -> None: ...

    def fall_silent(self) -> None:
        self.is_silent = True

    def notes(self, attempts: JobAttempts | None) -> HandoverNotes:
        return HandoverNotes(attempts, self.door, self.dispatcher, self.tasks.spawn)


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        w = World()
        try:
            async with asyncio.timeout(10):
                await test(w)
        finally:
            await w.tasks.close()

    asyncio.run(main())


def slot(number: int) -> do.ReleaseSlot:
    return do.ReleaseSlot("tm", f"slot-{number}", "the job has ended")


def test_many_instructions_are_carried_out_in_slices_and_later_ones_wait_for_them() -> None:
    async def test(w: World) -> None:
        many = [slot(number) for number in range(2 * PERFORMED_AT_ONCE + 5)]
        w.door.handle(w.core.event, *many)
        assert w.performed == many[:PERFORMED_AT_ONCE], "the loop has its turn after the first slice"
        last = do.ReportEnd()
        w.door.handle(w.core.event, last)
        while len(w.performed) <= len(many):
            await asyncio.sleep(0)
        assert w.performed == [*many, last]

    run(test)


def test_what_was_held_back_comes_before_all_that_waits() -> None:
    async def test(w: World) -> None:
        many = [slot(number) for number in range(PERFORMED_AT_ONCE + 5)]
        w.door.handle(w.core.event, *many)
        held_back: list[do.Instruction] = [do.ReportEnd(), do.DisconnectResourceManager()]
        w.door.perform_first(held_back, "a test")
        while len(w.performed) < len(many) + 2:
            await asyncio.sleep(0)
        assert w.performed == [*many[:PERFORMED_AT_ONCE], *held_back, *many[PERFORMED_AT_ONCE:]]

    run(test)


@pytest.mark.parametrize("where", ["the core", "an instruction"])
def test_an_unexpected_exception_closes_the_door_for_good(where: str) -> None:
    async def test(w: World) -> None:
        w.door.set_timer("soon", 0.0)
        changed = w.door.changed
        if where == "the core":
            w.door.handle(w.core.raises)
            assert w.door.crash_cause == "failed while handling raises: KeyError: 'oops'"
        else:
            w.fails_at = slot(1)
            w.door.handle(w.core.event, slot(0), w.fails_at, slot(2))
            assert w.door.crash_cause == "failed while carrying out ReleaseSlot after event: KeyError: 'oops'"
            assert w.performed == [slot(0)], "nothing that stands behind it is done"
        assert w.door.crashed.is_set()
        assert w.is_silent
        assert changed.is_set(), "those who wait for a change hear of it"
        performed = list(w.performed)
        w.door.handle(w.core.event, slot(3))
        assert w.door.ask(w.core.question, "crashed", "yes") == "crashed"
        w.door.perform_first([slot(4)], "a test")
        await asyncio.sleep(0.01)
        assert w.performed == performed
        assert w.core.heard == []
        assert not w.door._timers, "nothing is left that would fire"

    run(test)


def test_a_message_that_makes_no_sense_is_its_senders_fault() -> None:
    async def test(w: World) -> None:
        with pytest.raises(ProtocolError):
            w.door.handle(w.core.refuses)
        assert not w.door.crashed.is_set()
        assert w.door.ask(w.core.question, "crashed", "yes") == "yes"
        assert w.performed == [do.GoOn()]

    run(test)


def test_a_timer_replaces_that_of_its_name_and_a_cleared_one_does_not_fire() -> None:
    async def test(w: World) -> None:
        w.door.set_timer("a", 0.0)
        w.door.set_timer("a", 0.001)
        w.door.set_timer("b", 0.0)
        w.door.clear_timer("b")
        while not w.core.heard:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.005)
        assert w.core.heard == ["timer a"]

    run(test)


def test_slots_go_when_the_end_of_the_job_is_noted() -> None:
    async def test(w: World) -> None:
        may_write, written = asyncio.Event(), list[Mapping[str, Any]]()
        loop = asyncio.get_running_loop()

        def record_end(archive: Mapping[str, Any]) -> None:
            asyncio.run_coroutine_threadsafe(may_write.wait(), loop).result()
            written.append(archive)

        notes = w.notes(JobAttempts(0, lambda _: None, record_end=record_end))
        assert not notes.holds_back(slot(0)), "the job runs"
        notes.report_end()
        assert w.told == [{"state": "FINISHED"}], "the Dispatcher hears of the end at once"
        assert notes.holds_back(slot(1))
        assert notes.holds_back(do.DisconnectResourceManager())
        assert not notes.holds_back(do.WriteOutput("text"))
        assert notes.slots_held_back("tm") == ("slot-1",)
        assert notes.slots_held_back("other") == ()
        await asyncio.sleep(0.01)
        assert (written, w.performed) == ([], [])
        may_write.set()
        while not w.performed:
            await asyncio.sleep(0)
        assert written == [{"state": "FINISHED"}]
        assert w.performed == [slot(1), do.DisconnectResourceManager()]
        assert not notes.holds_back(slot(2))
        notes.report_end()  # for a Dispatcher that adopts the job later
        assert not notes.holds_back(slot(3)), "the end is noted once"

    run(test)


@pytest.mark.parametrize("reason", ["acknowledged", "the host stops", "crashed"])
def test_an_end_that_can_not_be_noted_holds_slots_no_longer_than_it_matters(
    reason: str,
) -> None:
    def record_end(_: Mapping[str, Any]) -> None:
        raise OSError("the store is away")

    async def test(w: World) -> None:
        notes = w.notes(JobAttempts(0, lambda _: None, record_end=record_end))
        notes.report_end()
        assert notes.holds_back(slot(1))
        await asyncio.sleep(0.01)
        assert w.performed == []
        if reason == "acknowledged":
            w.dispatcher.acknowledged.set()
        elif reason == "the host stops":
            notes.hurry()
        else:
            w.door.crash("testing", KeyError("oops"))
        await notes.written()
        while notes.slots_held_back("tm"):
            await asyncio.sleep(0)
        assert w.performed == ([] if reason == "crashed" else [slot(1)])

    run(test)


def test_a_note_is_written_until_that_works_and_a_fence_says_that_another_jobmaster_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firesteel_jobmaster.handover.FIRST_PAUSE", 0.001)
    errors: list[Exception] = [OSError("the store is away")]
    written: list[Attempts] = []

    def note(attempts: Attempts) -> None:
        if errors:
            raise errors.pop(0)
        written.append(attempts)

    async def test(w: World) -> None:
        notes = w.notes(JobAttempts(0, note))
        notes.note(Attempts(3, ("tm",)))
        await notes.written()
        assert written == [Attempts(3, ("tm",))]
        errors.append(FencedError("epoch 2 leads"))
        notes.note(Attempts(4, ("tm",)))
        await notes.written()
        assert len(written) == 1
        assert w.core.heard == ["followed: epoch 2 leads"]
        w.notes(None).note(Attempts(5, ()))  # there is no JobMaster that could read it

    run(test)


def test_a_jobmaster_that_has_crashed_submits_no_tasks_and_tries_to_note_none() -> None:
    def note(_: Attempts) -> None:
        raise OSError("the store is away")

    async def test(w: World) -> None:
        notes = w.notes(JobAttempts(0, note))
        notes.note(Attempts(3, ("tm",)))
        submits: list[asyncio.Task[Any] | None] = []
        deployment: Any = SimpleNamespace(placement=SimpleNamespace(peers=()), tasks=())
        lanes: Any = SimpleNamespace(
            call=lambda tm, allocation, order, call, once: submits.append(w.tasks.spawn(call(None), order))
        )
        links: Any = None
        calls = SlotCalls(w.door, links, lanes, notes, "token", lambda: "", None, ())
        calls.perform(do.SubmitSlot("tm", "slot-1", deployment))
        await asyncio.sleep(0.01)
        (submit,) = submits
        assert submit is not None
        assert not submit.done(), "the attempt is not noted yet"
        w.door.crash("testing", KeyError("oops"))
        await submit  # which would raise if it went on: the deployment is none

    run(test)


def test_a_jobmaster_that_has_crashed_starts_no_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel_jobmaster.stage_run_link.FIRST_PAUSE", 0.001)
    starts: list[str] = []

    async def run_stages(message: m.RunStages) -> None:
        starts.append(message.run_id)
        raise PeerUnreachableError("no answer")

    async def test(w: World) -> None:
        follows: list[asyncio.Task[Any] | None] = []
        resourcemanager: Any = SimpleNamespace(gateway=lambda: SimpleNamespace(run_stages=run_stages))

        def spawn(coroutine: Any, name: str) -> asyncio.Task[Any] | None:
            follows.append(w.tasks.spawn(coroutine, name))
            return follows[-1]

        link = StageRunLink(w.door, "token", resourcemanager, lambda: "", spawn)
        link.run(do.StartStageRun("run-1", "", 1, (), ()))
        while not starts:
            await asyncio.sleep(0)
        link.silence()
        (follow,) = follows
        assert follow is not None
        await follow
        assert set(starts) == {"run-1"}

    run(test)


def test_a_crash_and_the_end_of_the_host_reach_all_who_make_calls() -> None:
    peers = mock.Mock()
    performer = InstructionPerformer(
        peers.door,
        peers.notes,
        peers.dispatcher,
        peers.resourcemanager,
        peers.taskmanagers,
        peers.lanes,
        peers.slot_calls,
        peers.stages,
        peers.work,
    )
    performer.fall_silent()
    silenced = {name for name, _, _ in peers.method_calls}
    assert silenced == {"taskmanagers.close", "lanes.silence", "stages.silence", "dispatcher.silence"}
    peers.reset_mock()
    performer.hurry()
    hurried = {name for name, _, _ in peers.method_calls}
    assert hurried == {"notes.hurry", "dispatcher.hurry", "resourcemanager.hurry", "lanes.hurry"}
