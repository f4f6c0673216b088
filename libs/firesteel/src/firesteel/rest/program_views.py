"""From which program a job came, and what another run of it may go on from, as job archives say it. Pure functions."""

from __future__ import annotations

import json
from typing import Any, Final

from firesteel.checkpoint.closing import CleanUp
from firesteel.config import options
from firesteel.graph.job_archive import CLEAN_UP
from firesteel.rest import program_types as t
from firesteel.rest.archive_cache import Archive

_UPLOAD: Final = options.APPLICATION_UPLOAD.key


def program_of(archive: Archive) -> dict[str, Any]:
    """The fields of ``/jobs/:jobid`` about running a job again; empty while it runs.

    ``firesteel-program`` is missing if the job was not submitted by a program that was uploaded.
    """
    if archive.get("end-time", -1) < 0:
        return {}
    settings = {key: row["value"] for key, row in archive.get("firesteel-settings", {}).items()}
    fields: dict[str, Any] = {"firesteel-restore-choices": _choices(archive)}
    if _UPLOAD in settings:
        program: t.JobProgram = {
            "id": settings[_UPLOAD],
            "name": settings[_UPLOAD].partition("_")[2],
            "entry": settings.get(options.APPLICATION_ENTRY.key),
            "arguments": json.loads(settings.get(options.APPLICATION_ARGUMENTS.key, "[]")),
        }
        fields["firesteel-program"] = program
    return fields


def _choices(archive: Archive) -> list[t.RestoreChoice]:
    """The last savepoint, and the last checkpoint if it has stayed."""
    latest = (archive.get("checkpoints") or {}).get("latest", {})
    choices: list[t.RestoreChoice] = []
    savepoint, checkpoint = latest.get("SAVEPOINT"), latest.get("COMPLETED")
    if savepoint is not None and savepoint["location"]:
        choices.append({"kind": "savepoint", "id": savepoint["id"], "path": savepoint["location"]})
    stays = archive.get(CLEAN_UP) in (CleanUp.KEEP, CleanUp.TOUCH_NOTHING)
    if stays and checkpoint is not None and checkpoint["location"] and not checkpoint["discarded"]:
        choices.append({"kind": "checkpoint", "id": checkpoint["id"], "path": checkpoint["location"]})
    return choices
