"""Archives of jobs as they are shown: with the rows of all subtasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.graph.job_archive import at_once, unpacked
from firesteel.rest import types as t
from firesteel.rest.views import job_overview
from firesteel_jobmaster.core import JobMasterCore


def job_archive(core: JobMasterCore) -> dict[str, Any]:
    """What a JobMaster says of its job."""
    return with_rows(at_once(core.look()))


def with_rows(archive: Mapping[str, Any]) -> dict[str, Any]:
    """The same archive, rows unpacked."""
    vertices = archive["vertices"]
    return {
        **archive,
        "vertices": [{**v, "subtasks": [row for text in v["subtasks"] for row in unpacked(text)]} for v in vertices],
    }


def job_row(job_id: str, state: str, start: int = 0, end: int = -1, name: str = "j") -> t.JobRow:
    """An item of /jobs/overview: a job without vertices."""
    return job_overview(
        {
            "jid": job_id, "name": name, "state": state, "start-time": start, "end-time": end, "duration": end - start,
            "timestamps": {}, "vertices": [],
        }
    )  # fmt: skip
