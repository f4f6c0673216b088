"""Who may ask what: tokens, names, and what the API refuses to open."""

from __future__ import annotations

import json
import logging
import os
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ConfigurationError
from firesteel.core.run_directory import private_directory
from firesteel.ha.directory import DirectoryServices
from firesteel.protocol import messages as m
from firesteel_dispatcher.app import create_service, rest_listener
from tests.integration.services.cluster_peers import SECRET, eventually
from tests.integration.services.dispatcher_world import (
    BEARER,
    BLOB,
    JOB,
    SHA,
    archive,
    graph,
    resourcemanager,
    run,
    world,
)
from tests.ports import free_ports

GUARDED = [
    ("POST", "/jobs"), ("PATCH", f"/jobs/{JOB}"), ("GET", f"/jobs/{JOB}/yarn-cancel"), ("DELETE", "/cluster"),
    ("PATCH", f"/jobs/{JOB}/clientHeartbeat"), ("GET", f"/jobs/{JOB}/collect/op"),
]  # fmt: skip
PAGE = ["/", "/dashboard/app.js", "/dashboard/app.css"]
FREE = [
    "/config",
    "/overview",
    "/jobs",
    "/jobs/overview",
    f"/jobs/{JOB}",
    f"/jobs/{JOB}/exceptions",
    f"/jobs/{JOB}/metrics/history",
]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("a token of the operator's own\n")
    path.chmod(0o600)
    return path


def test_changing_the_cluster_needs_a_token(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    strangers: list[dict[str, str]] = [
        {}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {SECRET}"}, {"Authorization": "Bearer \xff"},
    ]  # fmt: skip

    async def scenario() -> None:
        async with world(cluster_directory=tmp_path / "cluster") as w:
            await w.submit()
            for method, path in GUARDED:
                for headers in strangers:
                    url = w.service.rest.address + path
                    async with w.session.request(method, url, headers=headers) as answer:
                        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), path
                        assert "Authorization: Bearer" in (await answer.json())["errors"][0]
                assert (await w.ask(method, f"/v1{path}"))[0] == 401
            job = w.service.core.job(JOB)
            assert (job.ended, job.cancel_wanted, w.service.jobs.admission.is_closed) == (False, False, False)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    first = [
        r.getMessage() for r in caplog.records if "the token is" in r.getMessage() and "times" not in r.getMessage()
    ]
    assert len(first) == 2, "missing and wrong, each once for a peer"
    assert SECRET not in caplog.text


def test_reading_is_free_unless_there_is_a_token_file(token_file: Path) -> None:
    own = {"Authorization": f"Bearer {token_file.read_text().strip()}"}

    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            for path in FREE:
                async with w.session.get(w.service.rest.address + path) as answer:
                    assert answer.status == 200, path
        async with world(options={"firesteel.rest.token-file": str(token_file)}) as w:
            await w.submit()
            for path in FREE:
                url = w.service.rest.address + path
                for headers, status in (({}, 401), (own, 200), (BEARER, 200)):
                    async with w.session.get(url, headers=headers) as answer:
                        assert answer.status == status, path
            for path in ("/health", "/ready", *PAGE):  # the page shows nothing before its user has logged in
                async with w.session.get(w.service.rest.address + path) as answer:
                    assert answer.status == 200, path
            assert (await w.ask("PATCH", f"/jobs/{JOB}", headers=own))[0] == 202

    run(scenario())


def test_callers_are_told_what_they_may_do() -> None:
    async def scenario() -> None:
        async with world() as w:  # an embedded one, whose jobs can be cancelled by everybody
            assert (await w.get("/config"))[1]["firesteel-access"] == {"change": False, "cancel": True}
            async with w.session.get(w.service.rest.address + "/config", headers=BEARER) as answer:
                assert (await answer.json())["firesteel-access"] == {"change": True, "cancel": True}

    run(scenario())


def test_the_ports_answer_only_what_is_theirs() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            for path in ("/jobs", "/overview", f"/jobs/{JOB}"):
                async with w.session.get(w.service.address + path, headers=BEARER) as answer:
                    assert answer.status == 404, path
            for path in ("/rpc/job_finished", f"/blobs/{SHA}"):
                for headers in ({}, BEARER):
                    async with w.session.post(w.service.rest.address + path, json={}, headers=headers) as answer:
                        assert answer.status == 404, path
            async with w.session.post(w.service.address + "/rpc/jobmaster_lost", json={}, headers=BEARER) as answer:
                assert answer.status == 401

    run(scenario())


def service(tmp_path: Path, **options: Any) -> None:
    settings = Settings({key.replace("__", "-").replace("_", "."): value for key, value in options.items()})
    create_service(
        settings=settings, secret=SECRET, clock=SystemClock(), ha=DirectoryServices(settings, tmp_path), lasting=True
    )


def test_jobs_of_an_embedded_cluster_are_cancelled_without_a_token() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            assert (await w.ask("PATCH", f"/jobs/{JOB}?mode=cancel"))[0] == 202
            assert w.service.core.job(JOB).cancel_wanted
            assert (await w.ask("DELETE", "/cluster"))[0] == 401

    run(scenario())


def test_a_page_of_another_site_can_not_cancel_a_job_of_an_embedded_cluster() -> None:
    """It may have the browser send a GET, as for an image, in which nothing names the page."""

    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            assert (await w.ask("GET", f"/jobs/{JOB}/yarn-cancel", headers={"Sec-Fetch-Site": "cross-site"}))[0] == 401
            assert (await w.ask("GET", f"/v1/jobs/{JOB}/yarn-cancel"))[0] == 401
            assert (await w.ask("PATCH", f"/jobs/{JOB}", headers={"Origin": "https://example.org"}))[0] == 403
            assert not w.service.core.job(JOB).cancel_wanted

    run(scenario())


def test_uploads_can_be_switched_off() -> None:
    async def scenario() -> None:
        async with world(options={"web.submit.enable": "false"}) as w:
            assert (await w.get("/config"))[1]["features"]["web-submit"] is False
            for method, path in (
                ("GET", "/jars"), ("POST", "/jars/upload"), ("DELETE", "/jars/a"), ("POST", "/v1/jars/a/run"),
                ("POST", "/jars/a/run-application"), ("GET", "/jars/a/plan"), ("POST", "/jars/a/plan"),
            ):  # fmt: skip
                status, answer = await w.ask(method, path, headers=BEARER)
                assert (status, "web.submit.enable is false" in answer["errors"][0]) == (403, True), path
            await w.submit()

    run(scenario())


def test_pages_can_be_kept_from_ending_jobs(tmp_path: Path) -> None:
    page = {**BEARER, "Origin": "http://localhost"}

    async def scenario() -> None:
        off = {"web.cancel.enable": "false"}
        async with world(options=off, cluster_directory=tmp_path / "cluster") as w:
            await w.submit()
            assert (await w.get("/config"))[1]["features"]["web-cancel"] is False
            for method, path in (
                ("PATCH", f"/jobs/{JOB}"), ("POST", f"/jobs/{JOB}/stop"), ("GET", f"/jobs/{JOB}/yarn-cancel"),
                ("POST", f"/applications/{JOB}/cancel"),
            ):  # fmt: skip
                status, answer = await w.ask(method, path, headers=page)
                assert (status, "web.cancel.enable is false" in answer["errors"][0]) == (403, True), path
            without_origin = {**BEARER, "Sec-Fetch-Mode": "no-cors"}  # an image of the page, say
            assert (await w.ask("GET", f"/jobs/{JOB}/yarn-cancel", headers=without_origin))[0] == 403
            assert not w.service.core.job(JOB).cancel_wanted
            assert (await w.ask("PATCH", f"/jobs/{JOB}", headers=BEARER))[0] == 202, "a client can"

    run(scenario())


def test_the_log_says_who_requested_what(caplog: pytest.LogCaptureFixture, token_file: Path, tmp_path: Path) -> None:
    own = {"Authorization": f"Bearer {token_file.read_text().strip()}", "X-Forwarded-For": "192.0.2.1"}

    async def scenario() -> None:
        options = {"firesteel.rest.token-file": str(token_file)}
        async with world(options=options, cluster_directory=tmp_path / "cluster") as w:
            await w.submit()
            assert (await w.ask("PATCH", f"/jobs/{JOB}"))[0] == 401
            assert (await w.ask("PATCH", f"/jobs/{JOB}", headers=own))[0] == 202
            assert (await w.ask("PATCH", f"/jobs/{JOB}/clientHeartbeat", json={}, headers=own))[0] != 401
            assert (await w.ask("GET", "/overview", headers=own))[0] == 200

    with caplog.at_level(logging.INFO, logger="firesteel_dispatcher.audit"):
        run(scenario())
    submitted, refused, cancelled = (r.getMessage() for r in caplog.records if r.name == "firesteel_dispatcher.audit")
    secret = "asked by the holder of the token of firesteel.security.secret-file from 127.0.0.1"
    assert submitted == f"POST /jobs (submits a job), {secret}: 202, job {JOB}"
    cancel = f"PATCH /jobs/:jobid (cancels a job, jobid '{JOB}'), asked by "
    assert refused.startswith(f"{cancel}a caller without a token from 127.0.0.1: 401, 'The token is missing")
    peer = "127.0.0.1 for '192.0.2.1'"
    assert cancelled == f"{cancel}the holder of the token of firesteel.rest.token-file from {peer}: 202"
    assert token_file.read_text().strip() not in caplog.text


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_the_api_is_not_opened_to_other_hosts_without_a_token(address: str, tmp_path: Path, token_file: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"rest\.bind-address = .*token-file.*allow-unauthenticated"):
        service(tmp_path, rest_bind__address=address)
    service(tmp_path, rest_bind__address=address, firesteel_rest_token__file=str(token_file))
    service(tmp_path, rest_bind__address=address, firesteel_rest_allow__unauthenticated="true")


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path, token_file: Path) -> None:
    token_file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="others may read it"):
        service(tmp_path, firesteel_rest_token__file=str(token_file))
    with pytest.raises(ConfigurationError, match="can't be read"):
        service(tmp_path, firesteel_rest_token__file=str(tmp_path / "nothing"))


def test_the_advertised_name_is_answered_and_others_are_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = {"rest.address": "flink.example"}
        async with world(options=options, cluster_directory=tmp_path) as w:
            assert w.service.rest.address.startswith("http://flink.example:")
            port = w.service.rest.address.rpartition(":")[2]
            url = f"http://127.0.0.1:{port}/config"
            for host, origin, status in (
                ("flink.example", "http://flink.example", 200), ("evil.example", "", 403),
                ("flink.example", "http://evil.example", 403), ("localhost", "", 200),
            ):  # fmt: skip
                headers = {"Host": host, **({"Origin": origin} if origin else {})}
                async with w.session.get(url, headers=headers) as answer:
                    assert answer.status == status, (host, origin)
                    assert "Access-Control-Allow-Origin" not in answer.headers

    run(scenario())


# Clients that are gone


def test_a_job_is_cancelled_when_its_client_falls_silent() -> None:
    config = {"execution.shutdown-on-attached-exit": "true", "client.heartbeat.timeout": "1 h"}
    path = f"/jobs/{JOB}/clientHeartbeat"

    async def scenario() -> None:
        async with world(options={"heartbeat.timeout": "4 s"}) as w:
            await w.rest.submit(graph(config=config), {SHA: BLOB})
            await w.jobmaster.wait_for("start_job")
            now = SystemClock().epoch_ms()
            await w.rest.client_heartbeat(JOB, now + 3_600_000)
            bodies: list[Any] = [{}, [], {"expiredTimestamp": "x"}, {"expiredTimestamp": None}]
            for body in bodies:
                assert (await w.ask("PATCH", path, json=body, headers=BEARER))[0] == 400
            other = f"/jobs/{'f' * 32}/clientHeartbeat"
            assert (await w.ask("PATCH", other, json={"expiredTimestamp": 1}, headers=BEARER))[0] == 404
            assert not w.service.core.job(JOB).cancel_wanted
            assert (await w.ask("PATCH", path, json={"expiredTimestamp": now}, headers=BEARER)) == (202, {})
            await w.jobmaster.wait_for("cancel")
            await w.finish("CANCELED")
            assert (await w.ask("PATCH", path, json={"expiredTimestamp": now}, headers=BEARER)) == (202, {})

    run(scenario())


# The end of the cluster


def test_the_cluster_is_shut_down_in_order() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            assert (await w.ask("DELETE", "/cluster", headers=BEARER)) == (200, {})
            assert (await w.ask("DELETE", "/v1/cluster", headers=BEARER)) == (200, {})
            await w.jobmaster.wait_for("cancel")
            assert w.resourcemanager.of("shut_down") == []
            status, answer = await w.ask("POST", "/jobs", data=_form(), headers=BEARER)
            assert (status, "shut down" in answer["errors"][0]) == (503, True)
            await w.dispatcher().job_finished(m.JobFinished(JOB, archive("CANCELED")))
            await w.service.end_wanted()
            assert len(w.jobmaster.of("shut_down")) == len(w.resourcemanager.of("shut_down")) == 1
            await eventually(lambda: w.service.core.job(JOB).state == "CANCELED")

    run(scenario())


def test_a_service_that_is_away_when_the_cluster_ends_is_told_when_it_is_back() -> None:
    async def scenario() -> None:
        async with world() as w:
            port = int(w.resourcemanager.address.rpartition(":")[2])
            await w.resourcemanager.stop()
            assert (await w.ask("DELETE", "/cluster", headers=BEARER)) == (200, {})
            await w.jobmaster.wait_for("shut_down")
            back = resourcemanager()
            await back.start("127.0.0.1", port)
            try:
                await back.wait_for("shut_down")
                await w.service.end_wanted()
                assert len(w.jobmaster.of("shut_down")) == len(back.of("shut_down")) == 1
            finally:
                await back.stop()

    run(scenario())


def test_the_cluster_ends_though_its_services_stay_away() -> None:
    async def scenario() -> None:
        async with world(options={"cluster.services.shutdown-timeout": "300 ms"}) as w:
            await w.jobmaster.stop()
            await w.resourcemanager.stop()
            assert (await w.ask("DELETE", "/cluster", headers=BEARER)) == (200, {})
            await w.service.end_wanted()

    run(scenario())


def _form() -> Any:
    form = aiohttp.FormData()
    form.add_field("request", json.dumps({"executionPlanFileName": "plan"}))
    form.add_field("file_0", json.dumps(graph("e" * 32).to_plain()), filename="plan")
    form.add_field("file_1", BLOB, filename=SHA, content_type="application/octet-stream")
    return form


def test_a_cluster_does_not_start_where_somebody_listens_on_its_port(tmp_path: Path) -> None:
    """Clients would hand their tokens to whoever does."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as stranger:
            port = stranger.getsockname()[1]
            for directory in (private_directory(tmp_path / "a"), None):
                with pytest.raises(OSError, match="the REST API does not start") as refused:
                    async with world(port, cluster_directory=directory):
                        pass
                said = str(refused.value)
                assert f"can't listen on 127.0.0.1:{port}: Address already in use" in said
                assert f"process {os.getpid()} (" in said
                assert f"rest.port, or rest.bind-port to a range such as {port}-" in said
            (free,) = free_ports(1)
            bind = {"rest.bind-port": f"{port},{free}"}
            async with world(port, cluster_directory=private_directory(tmp_path / "b"), options=bind) as w:
                assert w.service.rest.address == f"http://127.0.0.1:{free}"

    run(main())


def test_an_embedded_cluster_runs_beside_another_one_unless_a_port_was_chosen() -> None:
    def moves_on(options: dict[str, str], *, lasting: bool) -> bool:
        return rest_listener(Settings(options), "127.0.0.1", "", lasting).next_free

    assert moves_on({}, lasting=False)
    assert not moves_on({}, lasting=True)
    assert not moves_on({"rest.port": "8081"}, lasting=False)
    assert not moves_on({"rest.bind-port": "8081-8090"}, lasting=False)
