"""The REST answer about the events of a job, from job archives. Pure functions."""

from __future__ import annotations

from firesteel.graph.job_archive import EVENTS
from firesteel.rest import event_types as e
from firesteel.rest.archive_cache import Archive
from firesteel.rest.picking import picked


def job_events(archive: Archive) -> e.JobEventsInfo:
    """/jobs/:jobid/events: what has happened to a job, in the order of time. Archives of older releases have none."""
    events = archive.get(EVENTS) or {"events": [], "dropped": 0}
    return {
        "now": archive["now"],
        "events": [picked(e.JobEventInfo, event) for event in events["events"]],
        "dropped": events["dropped"],
    }
