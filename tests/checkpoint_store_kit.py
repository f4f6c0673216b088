"""Holds a store of completed checkpoints against its contract (``firesteel.checkpoint.store``)."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint
from firesteel.core.errors import CheckpointStorageError
from firesteel.testing.rules import require


def check_checkpoint_store(make_store: Callable[[], CompletedCheckpointStore]) -> None:
    """Count, add, repeat, remove and forget; at the end the store is as new.

    Args:
        make_store: makes a store of one and the same job, each time anew, as one JobMaster after the other does. A
            store that is not persistent may return the same one each time.

    Raises:
        AssertionError: says which rule is broken.
    """
    store = make_store()
    require(store.all() == [], "a new store is not empty")
    require([store.next_id(), store.next_id()] == [1, 2], "ids do not begin with 1, 2")
    require(make_store().next_id() == 3, "the next JobMaster gets an id again")
    require(store.next_id(above=7) == 8, "next_id() is not above the number that it was given")
    require(make_store().next_id(above=3) == 9, "next_id() goes back")
    entries = [StoredCheckpoint(number, f"/c/chk-{number}/_metadata", text) for number, text in _ENTRIES.items()]
    for entry in reversed(entries):
        store.add(entry)
        store.add(entry)
    require(store.all() == entries, "all() does not give what was added, in the order of ids")
    require(make_store().all() == entries, "the next JobMaster does not find what was added")
    require(store.damaged == (), "damaged names something though nothing is")
    try:
        store.add(StoredCheckpoint(2, "/elsewhere", None))
    except CheckpointStorageError as error:
        require(bool(str(error)), "add() of another checkpoint of one id raises without a message")
    else:
        raise AssertionError("add() of another checkpoint of one id does not raise CheckpointStorageError")
    require(make_store().all() == entries, "add() that has raised has changed something")
    store.remove(2)
    store.remove(2)
    store.remove(99)
    require([e.checkpoint_id for e in make_store().all()] == [1, 11], "remove() removes something else")
    store.clear()
    store.clear()
    require(make_store().all() == [], "clear() leaves checkpoints")
    require(make_store().next_id() == 1, "clear() leaves the counter")
    store.clear()


_ENTRIES = {1: None, 2: "metadata\nof 2", 11: None}
