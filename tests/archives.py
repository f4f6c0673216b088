"""Archives of jobs as they are shown: with the rows of all subtasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.graph.job_archive import at_once, unpacked
from firesteel_jobmaster.core import JobMasterCore


def seen(core: JobMasterCore) -> dict[str, Any]:
    """What a JobMaster says of its job."""
    return with_rows(at_once(core.look()))


def with_rows(archive: Mapping[str, Any]) -> dict[str, Any]:
    """The same archive, rows unpacked."""
    vertices = archive["vertices"]
    return {
        **archive,
        "vertices": [{**v, "subtasks": [row for text in v["subtasks"] for row in unpacked(text)]} for v in vertices],
    }
