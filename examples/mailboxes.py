"""A source with an enumerator of one's own: mailboxes (mbox files) of a folder, and who wrote how much in them.

The enumerator looks into the folder, gives each reader that asks the largest mailbox that is left, and says when there
is none. It runs in a slot, in a task of its own, and its state is part of the checkpoint: which mailboxes are left. The
position in a mailbox is the number of messages that were read.

Run it with ``python examples/mailboxes.py FOLDER``.
"""

from __future__ import annotations

import mailbox
import sys
from collections.abc import Callable, Sequence
from email.utils import parseaddr
from pathlib import Path
from typing import Any

from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.base import (
    Boundedness,
    Chunk,
    ReaderContext,
    Source,
    Split,
    SplitCursor,
    SplitEnumerator,
    SplitEnumeratorContext,
    SplitQueueReader,
)

Mail = tuple[str, int]
"""Sender, and bytes of the message."""
Found = list[tuple[int, str]]
"""Size and name of mailboxes."""


class Mailboxes(Source[Mail]):
    """The messages of all ``.mbox`` files of a folder, on whichever host the slots are; a split is a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        return MailboxEnumerator(context, self.folder, None)

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        return MailboxEnumerator(context, self.folder, checkpoint)

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Mail]:
        return MailboxReader()


class MailboxEnumerator(SplitEnumerator):
    """Knows the mailboxes that nobody reads yet; None = it has not looked."""

    def __init__(self, context: SplitEnumeratorContext, folder: str, left: list[str] | None) -> None:
        self.context, self.folder, self.left = context, folder, left
        self.waiting: list[int] = []

    def start(self) -> None:
        if self.left is None:
            self.context.call_async(look_into(self.folder), self.looked)

    def looked(self, found: Found | None, error: BaseException | None) -> None:
        if error is not None or found is None:
            raise RuntimeError(f"can't look into {self.folder}") from error
        self.left = [name for _, name in sorted(found, reverse=True)] + (self.left or [])
        waiting, self.waiting = self.waiting, []
        for subtask in waiting:
            self.handle_split_request(subtask, None)

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        if self.left is None:
            self.waiting.append(subtask_id)
        elif self.left:
            name = self.left.pop(0)
            self.context.assign_split(Split(name, {"path": str(Path(self.folder, name))}), subtask_id)
        else:
            self.context.signal_no_more_splits(subtask_id)

    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        self.left = [split.id for split in splits] + (self.left or [])

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return self.left


def look_into(folder: str) -> Callable[[], Found]:
    return lambda: [(path.stat().st_size, path.name) for path in Path(folder).iterdir() if path.suffix == ".mbox"]


class MailboxReader(SplitQueueReader[Mail]):
    """Opens mailboxes."""

    blocking = True

    def open_split(self, split: Split) -> SplitCursor[Mail]:
        return MailboxCursor(split)


class MailboxCursor(SplitCursor[Mail]):
    """Reads the messages of one."""

    def __init__(self, split: Split) -> None:
        self.box = mailbox.mbox(str(split.data["path"]), create=False)
        self.keys = self.box.keys()
        self.read_so_far = int(str(split.position or 0))

    def read(self, max_records: int) -> Chunk[Mail]:
        last = min(len(self.keys), self.read_so_far + max_records)
        mails = [self.mail(key) for key in self.keys[self.read_so_far : last]]
        self.read_so_far = last
        return Chunk(mails, last, last == len(self.keys))

    def mail(self, key: str) -> Mail:
        sender = parseaddr(str(self.box[key]["From"]))[1]
        return sender, len(self.box.get_bytes(key))

    def close(self) -> None:
        self.box.close()


def main(folder: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    mails = env.from_source(Mailboxes(folder), WatermarkStrategy.no_watermarks(), "mailboxes")
    written = mails.key_by(lambda mail: mail[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    total: dict[str, int] = {}
    with written.execute_and_collect("Who wrote how much") as results:
        for sender, characters in results:
            total[sender] = max(characters, total.get(sender, 0))
    for sender, characters in sorted(total.items(), key=lambda item: (-item[1], item[0])):
        print(f"{characters:>8} {sender}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("say which folder has the mailboxes: mailboxes.py FOLDER")
    main(Path(sys.argv[1]))
