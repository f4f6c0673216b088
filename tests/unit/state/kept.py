"""What was written of state once, kept in files: so that later versions can be held against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from firesteel.state.snapshots import StateChunk, StateInfo
from firesteel.testing.snapshots import SnapshotContents

_CHUNKS: Final = "chunks.json"


def keep(contents: SnapshotContents, folder: Path) -> None:
    """Put it into a new folder."""
    folder.mkdir(parents=True)
    for file, data in contents.files.items():
        (folder / file).write_bytes(data)
    chunks = [[chunk.state, chunk.key_group, chunk.count, chunk.data.hex()] for chunk in contents.chunks]
    plain = {"states": [info.to_json() for info in contents.states], "chunks": chunks}
    (folder / _CHUNKS).write_text(json.dumps(plain))


def stored_contents(folder: Path, key_groups: range) -> SnapshotContents:
    """As it was taken, by a subtask with these key groups."""
    plain = json.loads((folder / _CHUNKS).read_text())
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != _CHUNKS}
    chunks = [StateChunk(state, group, count, bytes.fromhex(data)) for state, group, count, data in plain["chunks"]]
    return SnapshotContents([StateInfo.from_json(info) for info in plain["states"]], chunks, files, key_groups)


def names_in(folder: Path) -> list[str]:
    """What is kept in the folders of a folder."""
    return sorted(path.parent.name for path in folder.glob(f"*/{_CHUNKS}"))
