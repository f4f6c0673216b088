"""Payloads about runs of bounded stages; part of ``firesteel.protocol.messages``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.protocol.message import Message


@dataclass(frozen=True)
class RunStages(Message):
    """A JobMaster has stages run; a repeat with the same id changes nothing.

    Attributes:
        run_id: unique id of the run.
        description: for Spark's user interface.
        cores: tasks that may run at the same time.
        stages: plain ``firesteel.protocol.stages.Stage``, each behind those that it reads.
        blobs: SHA-256 of the blobs that tasks need.
        blob_address: base URL of the blobs.
        sender: token of the JobMaster.
    """

    job_id: str
    run_id: str
    description: str
    cores: int
    stages: tuple[Mapping[str, Any], ...]
    blobs: tuple[str, ...]
    blob_address: str
    sender: str = ""


@dataclass(frozen=True)
class StageRunRef(Message):
    """Names a run of stages.

    Attributes:
        offset: of the first result that the caller needs.
        known: ids of stages about whose tasks the caller knows everything.
    """

    job_id: str
    run_id: str
    offset: int = 0
    sender: str = ""
    known: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageRunLook(Message):
    """State and progress of a run; see ``firesteel.protocol.stages.RunLook``."""

    state: str
    message: str
    progress: Mapping[str, Any]
    pages: str = ""


@dataclass(frozen=True)
class StageRunResults(Message):
    """Some results of the tasks of a run, each as base64 text; ``end``: there are no more."""

    results: tuple[str, ...]
    end: bool
