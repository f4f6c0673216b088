"""The checkpoint storage ``stepped``: files, with the steps of a checkpoint at which somebody dies.

It comes to slots and JobMasters as any plug-in does, by an entry point (``plugin``). Orders lie beside its directory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from firesteel.checkpoint.filesystem import DirectoryCheckpointStorage
from firesteel.checkpoint.handles import FileState, StateHandle
from firesteel.checkpoint.storage import StateWriter, StorageParameters
from tests.integration.recovery import steps

NAME = "stepped"
FOLDER = "checkpoints"
"""Of the directory of checkpoints, in the folder of the orders."""
STATE_READS = "state-reads"
"""A file beside it: each read of a file with state is a line in it."""


class SteppedStorage(DirectoryCheckpointStorage):
    """See the module."""

    name = NAME

    def __init__(self, parameters: StorageParameters) -> None:
        super().__init__(parameters)
        self._orders = self.base.parent

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        steps.at(self._orders, steps.ASYNC)
        return _SteppedWriter(super().open_state_stream(checkpoint_id, hint), self._orders)

    def open_state(self, handle: StateHandle) -> BinaryIO:
        if isinstance(handle, FileState):
            with open(self._orders / STATE_READS, "a") as file:
                file.write(f"{handle.path}\n")
        return super().open_state(handle)

    def verify(self, handles: Iterable[StateHandle]) -> None:
        steps.at(self._orders, steps.ACKNOWLEDGED)
        super().verify(handles)

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        steps.at(self._orders, steps.BEFORE_METADATA)
        location = super().write_metadata(checkpoint_id, data)
        steps.at(self._orders, steps.AFTER_METADATA)
        return location

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        steps.at(self._orders, steps.REMOVING)
        super().dispose(location, files, keep)

    def close_job(self, keep: Collection[str] = ()) -> None:
        steps.at(self._orders, steps.CLOSING)
        super().close_job(keep)


class _SteppedWriter(StateWriter):
    def __init__(self, writer: StateWriter, orders: Path) -> None:
        self._writer, self._orders = writer, orders

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writer.write(data)

    def close(self) -> StateHandle:
        handle = self._writer.close()
        steps.at(self._orders, steps.WRITTEN)
        return handle

    def abort(self) -> None:
        self._writer.abort()


@contextmanager
def plugin(folder: Path) -> Iterator[str]:
    """A directory that makes the storage known to processes that have it on their path, and this one as long as it
    is open; returns what is the path of the others.
    """
    import os
    import sys

    info = folder / "stepped-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stepped\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[firesteel.checkpoint_storages]\n{NAME} = {SteppedStorage.__module__}:{SteppedStorage.__name__}\n"
    )
    root = str(Path(__file__).parents[3])
    before, own = os.environ.get("PYTHONPATH"), [str(folder), root]
    path = os.pathsep.join([*own, *([before] if before else [])])
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = path
    try:
        yield path
    finally:
        sys.path.remove(str(folder))
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
