"""Tests a file system against its contract (``firesteel.connectors.filesystems.file_system``)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from firesteel.connectors.filesystems.file_system import FileSystem, PartOutput, Persisted, RecoverableWriter
from firesteel.core.errors import ProgramError
from firesteel.functions.two_phase import CommitOutcome
from firesteel.testing.rules import require, require_raises, require_returns
from firesteel.testing.writing import Context

_THREADS: Final = 4
_DATA: Final = bytes(range(256)) * 300


def check_file_system(
    make_file_system: Callable[[], FileSystem],
    base_path: str,
    *,
    leftovers: Callable[[], Iterable[Any]] = tuple,
) -> None:
    """Write parts, fail, resume from a checkpoint, commit, list and read; at the end nothing hidden must be left.

    Args:
        make_file_system: makes a file system of the same place each time, as slots and the client do.
        base_path: path of an empty folder there, as a user writes it.
        leftovers: lists what exists in the folder and is not visible, without using the file system.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    files = make_file_system()
    path = type(files).path_of(base_path, "the kit")
    require(type(files).path_of(path, "the kit") == path, f"path_of() changes {path!r}, which it gave itself")
    require(list(files.find(path, _unexpected)) == [], "the folder is not empty before the first part")
    kit = _Kit(make_file_system, path)
    try:
        kit.check_commit()
        kit.check_abort()
        kit.check_recovery()
        kit.check_orphans(leftovers)
        kit.check_hidden_names()
        kit.check_listing()
        kit.check_reading()
    finally:
        kit.close()
    require(list(leftovers()) == [], f"something is left over: {list(leftovers())}")


def _unexpected(error: OSError) -> None:
    raise AssertionError(f"find() can't list a folder: {error}")


def _at_once(work: Callable[[], None]) -> None:
    work()


class _Kit:
    """Writes and reads below one path, as subtasks of several attempts do."""

    def __init__(self, make_file_system: Callable[[], FileSystem], path: str) -> None:
        self._make, self._path = make_file_system, path
        self._written: dict[str, bytes] = {}
        """Expected visible files, with their contents."""
        self._open: list[PartOutput] = []

    def close(self) -> None:
        """Release the parts that a failed check has left open."""
        for part in self._open:
            part.discard()

    def check_commit(self) -> None:
        """A part becomes visible as a whole when it is committed, however often it is committed."""
        context = Context(0, 1, checkpointing=True)
        part = self._part(self._make().writer(self._path, context), "a", "part-1", _DATA)
        self._require_visible("of a part that is being written")
        plain = self._finish(part)
        self._require_visible("of a part before its commit")
        self._commit(plain, context, CommitOutcome.COMMITTED)
        self._written[part.path] = _DATA
        self._require_visible("after a commit")
        self._commit(plain, context, CommitOutcome.ALREADY_COMMITTED)
        self._commit(plain, context, CommitOutcome.ALREADY_COMMITTED, again=True)
        self._require_visible("after repeated commits")
        require(not context.temporary, f"a part that was committed is still temporary: {sorted(context.temporary)}")

    def check_abort(self) -> None:
        """Nothing is left of a part that is aborted."""
        for closed in (False, True):
            context = Context(0, 1)
            part = self._part(self._make().writer(self._path, context), "a", f"part-{closed}", _DATA)
            if closed:
                part.close(_at_once)
            self._discard(part)
            part.abort()
            part.abort()
            for path in sorted(context.temporary):  # as the TaskManager does when a slot has died
                self._make().remove_temporary(path)
                self._make().remove_temporary(path)
            self._require_visible("after abort()")

    def check_recovery(self) -> None:
        """A part is resumed with the bytes that are in the checkpoint, and none of those written after it."""
        context = Context(0, 1, checkpointing=True)
        writer = self._make().writer(self._path, context)
        part = self._part(writer, "b", "part-2", b"in the checkpoint\n")
        persisted = part.persist(_at_once)
        writer.prepare(_at_once)
        part.keep()
        context.reached(1)
        plain = json.loads(json.dumps(persisted.plain))
        require(plain == persisted.plain, f"what persist() gave is not plain data: {persisted.plain!r}")
        self._require_named(plain, "visible", "Persisted.plain")
        part.stream.write(b"behind the checkpoint\n")
        self._discard(part)
        checkpoint = Persisted(plain, persisted.tail)
        for attempt in (1, 2):  # the next attempt may die as well
            context = Context(0, 1, attempt, 1, checkpointing=True)
            writer = self._make().writer(self._path, context)
            writer.remove_orphans()
            recovered = writer.recover("b", lambda attempt=attempt: f"part-2-{attempt}", checkpoint)  # type: ignore[misc]
            self._require_visible(f"of a part that attempt {attempt} goes on with")
            if recovered.output is not None:
                self._open.append(recovered.output)
            if attempt == 1 and recovered.output is not None:
                recovered.output.stream.write(b"of the attempt that died\n")
                self._discard(recovered.output)
        content, committables = b"", []
        if recovered.committable is not None:
            committables.append(json.loads(json.dumps(recovered.committable)))
        if recovered.output is not None:
            recovered.output.stream.write(b"and more\n")
            committables += [plain] if (plain := self._finish(recovered.output)) else []
        else:
            last = self._part(writer, "b", "part-2-more", b"and more\n")
            committables.append(self._finish(last))
        for committable in committables:
            self._commit(committable, context, CommitOutcome.COMMITTED)
        new_paths = {path for path, _ in self._find()} - self._written.keys()
        content = b"".join(self._read(path) for path in sorted(new_paths))
        expected = b"in the checkpoint\nand more\n"
        require(content == expected, f"a part that went on from a checkpoint holds {content!r} instead of {expected!r}")
        self._written |= {path: self._read(path) for path in new_paths}

    def check_orphans(self, leftovers: Callable[[], Iterable[Any]]) -> None:
        """The next attempt removes the parts that the former one has begun after the checkpoint."""
        context = Context(0, 1, 2, 5, checkpointing=True)
        writer = self._make().writer(self._path, context)
        self._discard(self._part(writer, "c", "part-3", _DATA))
        self._finish(self._part(writer, "c", "part-4", _DATA))
        needed_part = self._part(
            self._make().writer(self._path, Context(0, 1, 2, 4, checkpointing=True)), "c", "part-5", _DATA
        )
        needed = self._finish(needed_part)
        needed_part.keep()
        context = Context(0, 1, 3, 5, checkpointing=True)
        self._make().writer(self._path, context).remove_orphans()
        self._require_visible("after remove_orphans()")
        self._commit(needed, context, CommitOutcome.COMMITTED, again=True)
        self._written[needed_part.path] = _DATA
        self._require_visible("after remove_orphans() and the commit of what the checkpoint needs")
        require(list(leftovers()) == [], f"remove_orphans() leaves {list(leftovers())}")

    def check_hidden_names(self) -> None:
        """Files and folders whose names begin with a dot or an underscore are not listed."""
        context = Context(0, 1, 4, 5, checkpointing=True)
        writer = self._make().writer(self._path, context)
        for folder, name in (("a", "_SUCCESS"), ("a", ".hidden"), ("_folder", "part"), ("a/.folder", "part")):
            self._commit(self._finish(self._part(writer, folder, name, b"x")), context, CommitOutcome.COMMITTED)
        self._require_visible("when there are files whose names begin with a dot or an underscore")

    def check_listing(self) -> None:
        """Files, folders and patterns are listed, and missing ones are errors."""
        files, path = self._make(), self._path
        require(
            [listed for listed, _ in self._find()] == [listed for listed, _ in self._find()],
            "find() has no fixed order",
        )
        file = min(self._written)
        require(
            list(files.find(file, _unexpected)) == [(file, len(self._written[file]))], "find() of a file gives others"
        )
        pattern = f"{path}/[bc]/part*"
        matching = {name for name in self._written if name.startswith((f"{path}/b/", f"{path}/c/"))}
        listed = {name for name, _ in files.find(pattern, _unexpected)}
        require(listed == matching, f"find() of the pattern {pattern!r} gives {sorted(listed)}, not {sorted(matching)}")
        files.check(path, _unexpected)
        files.check(pattern, _unexpected)
        files.check(f"{path}/no-*", _unexpected, may_match_nothing=True)
        require_raises(ProgramError, lambda: files.check(f"{path}/no-such-file", _unexpected), "check() of nothing")
        require_raises(
            ProgramError, lambda: files.check(f"{path}/no-*", _unexpected), "check() of a pattern of nothing"
        )
        for call, method in ((files.size, "size()"), (files.open, "open()")):
            require_raises(FileNotFoundError, lambda call=call: call(f"{path}/no-such-file"), f"{method} of nothing")  # type: ignore[misc]

    def check_reading(self) -> None:
        """Streams can seek, and several threads can read a file at once."""
        files = self._make()
        name = next(path for path, data in self._written.items() if data == _DATA)
        require(files.size(name) == len(_DATA), f"size() is {files.size(name)} instead of {len(_DATA)}")
        with files.open(name) as stream:
            for position in (0, 70_000, 5, len(_DATA) - 3, len(_DATA)):
                stream.seek(position)
                require(stream.tell() == position, f"tell() is {stream.tell()} after seek({position})")
                data = stream.read(1000)
                require(data == _DATA[position : position + 1000], f"read(1000) at byte {position} gives other bytes")
        contents: list[bytes] = []
        threads = [threading.Thread(target=lambda: contents.append(_read(files, name))) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        require(contents == [_DATA] * _THREADS, "several threads can't read at once")

    def _part(self, writer: RecoverableWriter, folder: str, name: str, data: bytes) -> PartOutput:
        part = writer.begin(folder, name)
        self._open.append(part)
        part.stream.write(data)
        expected = f"{self._path}/{folder}/{name}"
        require(part.path == expected, f"the path of a part is {part.path!r} instead of {expected!r}")
        return part

    def _discard(self, part: PartOutput) -> None:
        self._open.remove(part)
        part.discard()

    def _finish(self, part: PartOutput) -> Any:
        """Close a part, and return its committable."""
        self._open.remove(part)
        part.close(_at_once)
        committable = part.committable()
        require(committable is not None, "committable() of a part with bytes is None")
        try:
            plain = json.loads(json.dumps(committable))
        except TypeError as error:
            raise AssertionError(f"a committable is not plain data: {committable!r}") from error
        self._require_named(plain, "to", "a committable")
        return plain

    def _require_named(self, plain: dict[str, Any], local_key: str, source: str) -> None:
        """Check that plain data contain the part's path: sinks show it in errors, and find the file system by it."""
        path = plain.get("uri") or plain.get(local_key)  # the keys of the local disk are older than this rule
        named = isinstance(path, str) and path.startswith(self._path)
        require(named, f"{source} does not have the path of the part as 'uri': {plain!r}")

    def _commit(self, plain: Any, context: Context, outcome: CommitOutcome, *, again: bool = False) -> None:
        committer = self._make().committer(context)
        results = require_returns(
            lambda: committer.commit([plain], again=again), f"commit() is to answer {outcome}, and raises"
        )
        require(len(results) == 1, f"commit() got one committable and answered for {len(results)}")
        require(results[0].outcome is outcome, f"commit() answered {results[0]}, not {outcome}")

    def _find(self) -> list[tuple[str, int]]:
        return list(self._make().find(self._path, _unexpected))

    def _read(self, path: str) -> bytes:
        return _read(self._make(), path)

    def _require_visible(self, when: str) -> None:
        listed, expected = dict(self._find()), {path: len(data) for path, data in self._written.items()}
        require(listed == expected, f"find() gives {listed} {when}, instead of {expected}")
        for path, data in self._written.items():
            require(self._read(path) == data, f"{path} holds other bytes {when}")


def _read(files: FileSystem, path: str) -> bytes:
    with files.open(path) as stream:
        return stream.read()
