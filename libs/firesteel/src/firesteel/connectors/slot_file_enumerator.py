"""The enumerator of files on remote file systems. It runs in a slot, where code may block and credentials are."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from firesteel.connectors.file_splits import FileEnumerator
from firesteel.connectors.file_watch import WatchedFilesEnumerator
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.core.errors import FileSystemError
from firesteel.functions.source import Split, SplitEnumerator, SplitEnumeratorContext

__all__ = ["SlotFileEnumerator"]

logger = logging.getLogger(__name__)

FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 30_000
SOON_MS: Final = 20
STATE_VERSION: Final = 1


class SlotFileEnumerator(SplitEnumerator):
    """Runs a ``FileEnumerator`` or ``WatchedFilesEnumerator`` in a slot.

    A file system that does not answer is asked again, with growing pauses; readers wait meanwhile.

    Args:
        context: of the runtime.
        config: configuration of that enumerator; with ``interval_ms`` it watches for new files.
        state: state of a checkpoint; None = the job starts without one.
    """

    def __init__(
        self, context: SplitEnumeratorContext, config: Mapping[str, Any], state: Mapping[str, Any] | None = None
    ) -> None:
        self._context = context
        make = WatchedFilesEnumerator if "interval_ms" in config else FileEnumerator
        self._interval_ms = int(config.get("interval_ms", 0))
        self._files = make(config, files=FileSystems(context.settings))
        self._waiting: dict[int, None] = {}
        self._checked = self._asking = False
        self._failures = 0
        if state is not None:
            self._checked = bool(state["checked"])
            self._files.restore(state["files"])

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Assign ranges to a reader, now or when there are some."""
        self._waiting[subtask_id] = None
        if not self._asking:
            self._serve()

    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        """Assign these ranges next."""
        self._files.add_splits_back(splits)

    def snapshot_state(self, checkpoint_id: int) -> Any:
        """State of the enumerator that runs here."""
        return {"version": STATE_VERSION, "checked": self._checked, "files": self._files.snapshot()}

    def _serve(self) -> None:
        """Assign ranges to the readers that wait for some."""
        for subtask in list(self._waiting):
            try:
                if not self._checked:
                    self._files.start()
                    self._checked = True
                splits = self._files.next_splits(subtask, self._context.current_parallelism())
            except (FileSystemError, ConnectionError, TimeoutError) as error:
                self._failures += 1
                pause = min(FIRST_PAUSE_MS << min(self._failures - 1, 16), LONGEST_PAUSE_MS)
                logger.warning(
                    "files can't be listed (%d times in a row), again in %d ms: %s", self._failures, pause, error
                )
                self._ask_in(pause)
                return
            self._failures = 0
            if splits:
                del self._waiting[subtask]
                for split in splits:
                    self._context.assign_split(split, subtask)
            elif self._files.exhausted:
                del self._waiting[subtask]
                self._context.signal_no_more_splits(subtask)
        if self._waiting:
            self._ask_in(min(max(SOON_MS, self._interval_ms), 1000) if self._files.idle else SOON_MS)

    def _ask_in(self, milliseconds: int) -> None:
        self._asking = True
        self._context.call_async(lambda: None, self._again, milliseconds)

    def _again(self, nothing: None, error: BaseException | None) -> None:
        self._asking = False
        if error is not None:
            raise error
        self._serve()
