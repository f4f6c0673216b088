"""The other services as a JobMaster sees them, for tests."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Mapping
from typing import Any

from firesteel.checkpoint.subtask_state import TaskState
from firesteel.core.clock import SystemClock
from firesteel.core.errors import PeerUnreachableError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterGateway
from firesteel.rpc import RpcClient, RpcRequest, check_token, rpc_routes
from firesteel.service.base import Service

SECRET = "secret of the tests"
PATIENCE = 100.0
"""Seconds after which a test gives up waiting."""
METHODS = (
    *("register_jobmaster", "declare_requirements", "disconnect_jobmaster", "forget_jobmaster"),
    *("jobmaster_heartbeat", "heartbeat_jobmaster", "share_placement", "submit_tasks", "cancel_tasks"),
    *("assign_splits", "free_slot", "collect"),
    *("trigger_checkpoint", "notify_checkpoint_complete"),
    *("job_state_changed", "job_finished", "jobmaster_lost"),
)
QUICK = {
    "heartbeat.interval": "100 ms",
    "heartbeat.timeout": "10 s",
    "cluster.registration.error-delay": "100 ms",
}


class Others(Service):
    """ResourceManager, one TaskManager with two slots, and Dispatcher, in one server.

    Args:
        name: of the TaskManager.
    """

    def __init__(self, name: str = "tm") -> None:
        super().__init__("others", drain_seconds=0.1)
        self.taskmanager_id = name
        self.clock = SystemClock()
        self.asked: Counter[str] = Counter()
        """Calls of each method, those included that were refused."""
        self.log: list[tuple[str, Mapping[str, Any]]] = []
        self.slots = 2
        self.refuse: dict[str, int] = {}
        """Method -> how many of the next calls fail."""
        self.rm_token = "rm1"
        self.dispatcher_token = ""
        """Set: reports have to carry it."""
        self.jobmasters: dict[str, JobMasterGateway] = {}
        self.jobmaster: JobMasterGateway | None = None
        self.executions: dict[str, str] = {}
        self.changed = asyncio.Event()
        self.results = [b"one", b"two"]
        self.app.add_routes(rpc_routes(dict.fromkeys(METHODS, self.serve), SECRET))

    def token_of(self, call: RpcRequest) -> str | None:
        if call.method in ("job_state_changed", "job_finished"):
            return self.dispatcher_token or None
        if call.method in ("declare_requirements", "jobmaster_heartbeat", "disconnect_jobmaster"):
            return self.rm_token
        return None

    async def serve(self, call: RpcRequest) -> Mapping[str, Any]:
        self.asked[call.method] += 1
        if (token := self.token_of(call)) is not None:
            check_token(call, token)
        self.log.append((call.method, call.payload))
        self.changed.set()
        self.changed = asyncio.Event()
        if self.refuse.get(call.method, 0) > 0:
            self.refuse[call.method] -= 1
            raise RuntimeError(f"{call.method} does not work now")
        act = getattr(self, f"on_{call.method}", None)
        return (await act(call.payload) if act else None) or {}

    def calls(self, method: str) -> list[Mapping[str, Any]]:
        return [payload for name, payload in self.log if name == method]

    async def wait_for(self, method: str, count: int = 1) -> Mapping[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while len(self.calls(method)) < count:
                await self.changed.wait()
        return self.calls(method)[count - 1]

    async def on_register_jobmaster(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        client = RpcClient(self.session, SECRET, self.clock)
        self.jobmaster = JobMasterGateway(client, payload["address"], payload["jobmaster_token"])
        self.jobmasters[payload["job_id"]] = self.jobmaster
        return {"token": self.rm_token}

    async def on_declare_requirements(self, payload: Mapping[str, Any]) -> None:
        if self.slots:
            self.spawn(self.offer(self.slots), "offer")

    async def offer(self, count: int) -> m.AcceptedSlots:
        assert self.jobmaster is not None
        slots = tuple(m.SlotOffer(i, f"{i:032x}", {"unix": f"/run/{i}"}, 1000 + i) for i in range(count))
        try:
            return await self.jobmaster.offer_slots(m.OfferSlots(self.taskmanager_id, self.address, slots))
        except PeerUnreachableError:  # the test killed it: a TaskManager keeps its slots then
            return m.AcceptedSlots(())

    async def on_submit_tasks(self, payload: Mapping[str, Any]) -> None:
        self.executions |= {t["execution_id"]: "DEPLOYING" for t in payload["deployment"]["tasks"]}

    async def on_cancel_tasks(self, payload: Mapping[str, Any]) -> None:
        self.spawn(self.report("CANCELED", *payload["execution_ids"]), "canceled")

    async def on_trigger_checkpoint(self, payload: Mapping[str, Any]) -> None:
        assert self.jobmaster is not None
        state = TaskState(finished=True).to_bytes().decode()
        for id_ in _named(payload):
            acknowledge = m.AcknowledgeCheckpoint(id_, payload["checkpoint_id"], {}, state)
            message = m.AcknowledgeCheckpoints((acknowledge,))
            self.spawn(self.jobmaster.acknowledge_checkpoints(message), "acknowledged")

    async def on_notify_checkpoint_complete(self, payload: Mapping[str, Any]) -> None:
        self.spawn(self.report("FINISHED", *_named(payload)), "committed")

    async def on_heartbeat_jobmaster(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"executions": self.executions, "metrics": {}}

    async def on_collect(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        rest = self.results[payload["offset"] :]
        if not rest:
            await asyncio.sleep(min(payload["wait_ms"], 20) / 1000)
        data = base64.b64encode(b"".join(rest)).decode()
        return {"offset": payload["offset"], "count": len(rest), "end": False, "data": data}

    async def report(self, state: str, *ids: str, error: dict[str, Any] | None = None) -> None:
        assert self.jobmaster is not None
        self.executions |= dict.fromkeys(ids, state)
        updates = tuple(m.TaskStateUpdate(id_, state, 0, error) for id_ in ids)
        await self.jobmaster.update_task_states(m.UpdateTaskStates(self.taskmanager_id, updates))

    async def all_run(self) -> list[str]:
        await self.wait_for("submit_tasks", 2)
        ids = list(self.executions)
        await self.report("INITIALIZING", *ids)
        await self.report("RUNNING", *ids)
        return ids


def _named(payload: Mapping[str, Any]) -> list[str]:
    """The tasks that a call about a checkpoint is for."""
    return [id_ for ids in payload["tasks"].values() for id_ in ids]
