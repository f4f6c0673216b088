"""High-availability services on top of cells (``firesteel.ha.cells``) and payloads.

Leadership and small records are in the cells, one for each component: the coordination service itself refuses writes of
an epoch that is over. Payloads are in a directory or an object store, and need no fence: each has a name of its own,
and counts only if a record has that name.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence

from typing_extensions import override

from firesteel.checkpoint.store import CompletedCheckpointStore
from firesteel.core.errors import FiresteelError
from firesteel.ha.cells import Cells, Change, put, settle
from firesteel.ha.checkpoint_cells import CellCheckpointStore
from firesteel.ha.documents import decode, encode
from firesteel.ha.job_cells import CellJobStore, check_payloads
from firesteel.ha.jobs import JobStore, RecordedEnd
from firesteel.ha.payloads import Payloads
from firesteel.ha.retrieval import Attempts, Listener
from firesteel.ha.services import HighAvailabilityServices, Leader, Leadership, of_job

logger = logging.getLogger(__name__)
_ATTEMPTS, _END = "attempts", "end"


class CellServices(HighAvailabilityServices):
    """Services on top of the cells and payloads of a cluster, both of which are closed with this object.

    Args:
        cells: leaders and records.
        payloads: values too large for records.
    """

    def __init__(self, cells: Cells, payloads: Payloads) -> None:
        self.cells, self.payloads = cells, payloads
        self.campaign_seconds = cells.campaign_seconds

    @override
    def campaign(self, component: str) -> Leadership | None:
        epoch = self.cells.campaign(component)
        if epoch is None:
            return None
        try:
            return CellLeadership(self.cells, component, epoch, attempts_in(self.cells, component))
        except (OSError, FiresteelError):
            self.cells.release(component, epoch)
            raise

    @override
    def leader(self, component: str) -> Leader | None:
        return self.cells.leader(component)

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        return self.cells.watch(component, listener)

    @override
    def depose(self, component: str) -> None:
        self.cells.depose(component)

    @override
    def job_store(self, leadership: Leadership) -> JobStore:
        return CellJobStore(self.cells, self.payloads, leadership.component, leadership.epoch)

    @override
    def completed_checkpoints(self, job_id: str, leadership: Leadership) -> CompletedCheckpointStore:
        return CellCheckpointStore(
            self.cells, self.payloads, of_job(job_id), leadership.epoch, self._metadata_of(job_id)
        )

    @override
    def record_end(self, leadership: Leadership, end: RecordedEnd) -> None:
        cells, component = self.cells, leadership.component
        value = encode(_END, end.to_plain())
        if len(value) > cells.largest_record:
            folder = self._metadata_of(component.removeprefix(of_job("")))
            payload = f"{folder}/{_END}.{leadership.epoch}.{secrets.token_hex(8)}"
            check_payloads(cells, self.payloads)
            self.payloads.write(payload, value)
            value = encode(_END, {"payload": payload})

        def plan() -> Sequence[Change] | None:
            record = cells.read(component, _END)
            return None if record is not None and record.value == value else [put(_END, value, record)]

        settle(cells, component, leadership.epoch, plan)

    @override
    def recorded_end(self, job_id: str) -> RecordedEnd | None:
        record = self.cells.read(of_job(job_id), _END)
        if record is None:
            return None
        plain = decode(_END, record.value)
        payload = plain.get("payload")
        return RecordedEnd.from_plain(plain if payload is None else decode(_END, self.payloads.read(str(payload))))

    @override
    def forget_job(self, job_id: str) -> None:
        self.payloads.remove(self._metadata_of(job_id))
        self.cells.forget(of_job(job_id))

    @override
    def remembers_job(self, job_id: str) -> bool:
        return self.cells.exists(of_job(job_id))

    @override
    def close(self) -> None:
        self.cells.close()
        self.payloads.close()

    @staticmethod
    def _metadata_of(job_id: str) -> str:
        return f"checkpoints/{job_id}"


class CellLeadership(Leadership):
    """A leadership won in cells.

    Args:
        cells: of the component.
        component: that is led.
        epoch: see ``Leadership``.
        attempts: see ``Leadership``.
    """

    def __init__(self, cells: Cells, component: str, epoch: int, attempts: Attempts) -> None:
        self._cells, self.component, self.epoch, self.attempts = cells, component, epoch, attempts

    @override
    def announce(self, address: str, token: str) -> None:
        self._cells.announce(self.component, Leader(self.epoch, address, token))

    @override
    def note_attempts(self, attempts: Attempts) -> None:
        def plan() -> Sequence[Change] | None:
            record = self._cells.read(self.component, _ATTEMPTS)
            value = encode(_ATTEMPTS, attempts.behind(attempts_in(self._cells, self.component)).to_plain())
            return None if record is not None and record.value == value else [put(_ATTEMPTS, value, record)]

        settle(self._cells, self.component, self.epoch, plan)

    @override
    def check(self) -> None:
        self._cells.check(self.component, self.epoch)

    @override
    def poll(self) -> None:
        self._cells.poll(self.component, self.epoch)

    @override
    def release(self) -> None:
        self._cells.release(self.component, self.epoch)


def attempts_in(cells: Cells, component: str) -> Attempts:
    """Attempts as the leaders of a component have noted them; see ``Leadership``.

    Raises:
        OSError: they can't be read for now.
        DamagedEntryError: they are damaged.
    """
    record = cells.read(component, _ATTEMPTS)
    return Attempts() if record is None else Attempts.from_plain(decode(_ATTEMPTS, record.value))
