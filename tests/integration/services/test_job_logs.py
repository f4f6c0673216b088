"""``/jobs/:jobid/logs``: the Dispatcher joins what processes tell, and names those that do not answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.services import dispatcher_world
from tests.integration.services.cluster_peers import Peer, serving
from tests.integration.services.dispatcher_world import JOB, run, world
from tests.ports import free_ports


def test_a_taskmanager_that_does_not_answer_is_named_and_the_rest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        {"time": time, "level": "INFO", "logger": "shop", "message": f"n{time}", "task": "price (1/2)#0"}
        for time in (5, 7)
    ]

    async def scenario() -> None:
        peer = Peer({"job_log": lambda _: {"records": records, "complete_to": -1}}, prefix="/process")
        async with serving(peer), world() as w:
            await w.submit()
            path = f"/jobs/{JOB}/logs?level=WARN&text=n&limit=10"
            monkeypatch.setitem(dispatcher_world.TASKMANAGER, "path", f"http://127.0.0.1:{free_ports(1)[0]}")
            status, answer = await w.get(path)
            assert (status, answer["records"]) == (200, [])
            errors: dict[str, Any] = {source["source"]: source.get("error") for source in answer["sources"]}
            assert errors["jobmanager"] is None
            assert errors["tm"], "it is named, with the reason"
            monkeypatch.setitem(dispatcher_world.TASKMANAGER, "path", peer.address)
            answer = (await w.get(path))[1]
            assert answer["records"] == [{**record, "source": "tm"} for record in records]
            assert answer["complete-to"] == -1
            assert "error" not in next(source for source in answer["sources"] if source["source"] == "tm")
            (request,) = peer.of("job_log")
            assert (request["job_id"], request["level"], request["text"], request["limit"]) == (JOB, "WARN", "n", 10)
            assert (await w.get(f"/jobs/{JOB}/logs?level=LOUD"))[0] == 400
            assert (await w.get(f"/jobs/{'0' * 32}/logs"))[0] == 404

    run(scenario())
