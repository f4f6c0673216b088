"""Another run of the program of a job: what it goes on from, with which arguments and settings."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel.graph.job_archive import CLEAN_UP
from firesteel.rest.program_views import program_of
from firesteel_dispatcher.programs import ProgramOrder, order_again

UPLOAD = "0f0e0d0c-0000-4000-8000-000000000000_job.whl"
CONFIG = {
    "firesteel.application.upload": UPLOAD,
    "firesteel.application.entry": "shop:main",
    "firesteel.application.arguments": '["--db-password", "hidden", "a b"]',
    "parallelism.default": "3",
    "python.files": f"/uploads/{UPLOAD.partition('_')[0]}/job.whl,/mine/helper.py",
    "execution.state-recovery.path": "/old/savepoint",
    "execution.target": "remote",
    "rest.port": "1",
    "pipeline.name": "set by the program itself",
    "s3.secret-key": "of the cluster",
}
SHOWN = {"firesteel.application.arguments": '["--db-password", "******", "a b"]', "s3.secret-key": "******"}


def archive(state: str = "CANCELED", **more: Any) -> dict[str, Any]:
    origins = {"pipeline.name": "program", "s3.secret-key": "cluster: config.yaml"}
    settings = {
        key: {"value": SHOWN.get(key, value), "origin": origins.get(key, "command line")}
        for key, value in CONFIG.items()
    }
    latest = {
        "SAVEPOINT": {"id": 6, "location": "/s/savepoint-6", "discarded": False},
        "COMPLETED": {"id": 8, "location": "/c/chk-8", "discarded": False},
    }
    return {
        "jid": "ab" * 16, "state": state, "end-time": -1 if state == "RUNNING" else 9, "config": CONFIG,
        "firesteel-settings": settings, "checkpoints": {"latest": latest}, CLEAN_UP: "keep", **more,
    }  # fmt: skip


def test_an_order_has_the_same_arguments_and_what_the_program_was_run_with() -> None:
    wanted = {
        "parallelism.default": "3",
        "python.files": "/mine/helper.py",
        "execution.state-recovery.path": "/s/savepoint-6",
        "execution.state-recovery.ignore-unclaimed-state": "true",
    }
    order = order_again(archive(), "/s/savepoint-6", drops_state=True)
    assert order == ProgramOrder(UPLOAD, "shop:main", ("--db-password", "hidden", "a b"), wanted)
    fresh = order_again(archive(), "", drops_state=False)
    assert fresh.settings == {key: wanted[key] for key in ("parallelism.default", "python.files")}


def test_a_job_from_outside_can_not_be_run_again() -> None:
    config = {key: value for key, value in CONFIG.items() if not key.startswith("firesteel.application")}
    with pytest.raises(ConfigurationError, match="was submitted from outside"):
        order_again(archive(config=config), "", drops_state=False)


def test_a_job_that_has_ended_says_its_program_without_secrets_and_what_it_has_left() -> None:
    shown = program_of(archive())
    assert shown["firesteel-program"] == {
        "id": UPLOAD, "name": "job.whl", "entry": "shop:main", "arguments": ["--db-password", "******", "a b"],
    }  # fmt: skip
    savepoint = {"kind": "savepoint", "id": 6, "path": "/s/savepoint-6"}
    assert shown["firesteel-restore-choices"] == [savepoint, {"kind": "checkpoint", "id": 8, "path": "/c/chk-8"}]
    assert program_of({**archive(), CLEAN_UP: "remove"})["firesteel-restore-choices"] == [savepoint]
    assert program_of(archive(checkpoints=None))["firesteel-restore-choices"] == []
    assert program_of(archive("RUNNING")) == {}
    assert "firesteel-program" not in program_of({**archive(), "firesteel-settings": {}})
