"""Whether what a deposed leader says is obeyed: looked at from outside, by what changes at the receiver of each call.

Leaders are known by their tokens, which are written down when they are made, so that of two leaders of the same thing
it is known which one came later. Nothing here asks the services whether they fence.
"""

from __future__ import annotations

from typing import Any

from firesteel.ha.services import DISPATCHER, RESOURCEMANAGER
from firesteel.protocol.gateways import (
    DispatcherGateway,
    JobMasterGateway,
    JobMasterHostGateway,
    ResourceManagerGateway,
    TaskManagerGateway,
)
from firesteel.protocol.method import Caller, Gateway
from firesteel_jobmaster.host import HostService

_GATEWAYS: dict[Caller, type[Gateway]] = {
    Caller.DISPATCHER: DispatcherGateway,
    Caller.RESOURCEMANAGER: ResourceManagerGateway,
    Caller.JOBMASTER_HOST: JobMasterHostGateway,
    Caller.TASKMANAGER: TaskManagerGateway,
}


class Obedience:
    """Watches all calls of a simulated cluster."""

    def __init__(self) -> None:
        self._leaders: dict[str, dict[str, int]] = {}
        """What is led -> token -> its place in the order of leaders."""
        self._heard: dict[tuple[int, str], int] = {}
        """Incarnation of a receiver, what is led -> the latest leader that it has followed."""
        self.refused = 0
        """Messages of deposed leaders that were turned away."""

    def leads(self, what: str, token: str) -> None:
        """Somebody begins to lead: a job, or the cluster as its ResourceManager or Dispatcher."""
        known = self._leaders.setdefault(what, {})
        known.setdefault(token, len(known) + 1)

    def before(self, callee: Any) -> Any:
        """What a receiver holds before a call, and when that is; for ``after``."""
        return (callee.world.now, _slots(callee)) if callee.service.name == "taskmanager" else None

    def after(self, caller: Any, callee: Any, call: Any, status: int, before_call: Any) -> None:
        """A call was answered.

        Raises:
            AssertionError: a message of a leader that is deposed, as the receiver has to know, has changed something.
        """
        self.refused += status == 409
        self._in_contract(caller, callee, call)
        if callee.service.name == "taskmanager":
            self._taskmanager(caller, callee, call, status, *before_call)
        elif callee.service.name == "jobmaster":
            self._jobmasters(callee, call)
        elif callee.service.name == "dispatcher":
            for job in callee.service.core.jobs.values():
                if job.jobmaster is not None:
                    self._follows(callee, f"job {job.id}", job.jobmaster[1], call)
        else:
            for job in callee.service.core.jobs.values():
                self._follows(callee, f"job {job.id}", job.token, call)
        if status == 200 and call.token and callee.service.name != "taskmanager":
            self._meant_for(callee, call)

    def _in_contract(self, caller: Any, callee: Any, call: Any) -> None:
        """Calls are those of the contract, by those who make them there."""
        gateway = JobMasterGateway if "job_id" in call.path else _GATEWAYS[_kind(callee)]
        by = gateway.methods[call.method].by
        assert _kind(caller) in by, f"{caller} calls {gateway.__name__}.{call.method}, which only {by} may"

    def _taskmanager(self, caller: Any, callee: Any, call: Any, status: int, since: float, slots_before: Any) -> None:
        self._follows(callee, RESOURCEMANAGER, callee.service._link.bond.token, call)
        now = _slots(callee)
        if callee.world.now == since:
            changed = [slots_before.get(i) or now[i] for i in now if slots_before.get(i) != now[i]]
        else:  # it waited for something, and others may have changed slots meanwhile
            meant = call.payload.get("allocation_id")
            changed = [slot for slot in now.values() if status == 200 and meant and slot.allocation == meant]
        for slot in changed:
            if caller.service.name == "jobmaster":
                led_by = slot.token
                assert not led_by or led_by == call.token, (
                    f"{call.method} of {caller} changed slot {slot.index} of {callee}, which another JobMaster leads"
                )
            elif caller.service.name == "resourcemanager":
                self._follows(callee, RESOURCEMANAGER, caller.service.token, call)

    def _jobmasters(self, callee: Any, call: Any) -> None:
        if isinstance(callee.service, HostService):
            followed = {id_: hosted.start for id_, hosted in callee.service._core._jobs.items()}
        else:
            followed = {id_: job.start_message for id_, job in callee.service._jobs.items()}
        for job_id, start in followed.items():
            self._follows(callee, DISPATCHER, start.dispatcher_token, call, f" for job {job_id}")

    def _follows(self, receiver: Any, what: str, token: str, call: Any, about: str = "") -> None:
        """A receiver follows a leader: never one that was before another that it has followed."""
        place = self._leaders.get(what, {}).get(token, 0)
        key = (receiver.incarnation, what + about)
        latest = self._heard.get(key, 0)
        if not place:
            return
        assert place >= latest, f"{receiver} followed a deposed leader of {what}{about} at {call.method}"
        self._heard[key] = place

    def _meant_for(self, callee: Any, call: Any) -> None:
        """A call that was obeyed carries the token of the one who obeyed it, not of a predecessor.

        Registrations are for whoever leads: their answer says who that is.
        """
        if call.method in ("register_taskmanager", "register_jobmaster"):
            return
        service = callee.service
        if "job_id" in call.path:
            own = service._jobs[call.path["job_id"]].token
        elif service.name == "dispatcher":
            own = service.leadership.token
        else:
            own = getattr(service, "token", None)
        assert own is None or call.token == own, f"{callee} obeyed {call.method}, which was meant for another leader"


def _kind(process: Any) -> Caller:
    service = process.service
    return Caller.JOBMASTER_HOST if isinstance(service, HostService) else Caller(service.name)


class _Held:
    """A slot as far as calls may change it."""

    def __init__(self, slot: Any) -> None:
        self.index, self.allocation, self.token = slot.index, slot.allocation_id, slot.jobmaster.token
        tasks = tuple((t.execution_id, t.sent, t.cancelling, t.taken, len(t.ahead)) for t in slot.tasks.values())
        self._all = (slot.allocation_id, slot.state, self.token, tasks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self._all == other._all

    __hash__ = None  # type: ignore[assignment]


def _slots(taskmanager: Any) -> dict[int, _Held]:
    return {slot.index: _Held(slot) for slot in taskmanager.service.core.slots}
