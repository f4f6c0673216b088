"""What of a program travels to the slots: by reference, once, and with errors that name the culprit."""

from __future__ import annotations

import array
import pickle
import sys
import threading
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from firesteel.client.code_shipment import CodeShipment
from firesteel.core.errors import ProgramError, SerializationError
from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec
from firesteel.runtime.slot.user_code import load_main

PROGRAM = """
import threading
from dataclasses import dataclass

FACTOR = 3
LOCK = threading.Lock()

@dataclass(frozen=True)
class Bid:
    price: int
    class Inner:
        pass

class Unused:
    pass

def helper(x):
    return Bid(x * FACTOR)

def needs_lock(x):
    with LOCK:
        return x

class Counter:
    def __init__(self):
        self.lock = threading.Lock()
    def __call__(self, x):
        return x

by_lambda = lambda x: helper(x).price
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The namespace of a ``__main__`` that was run from text."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(PROGRAM, "program.py", "exec"), main.__dict__)
    return main.__dict__


def in_a_slot(monkeypatch: pytest.MonkeyPatch, blob: bytes | None) -> ModuleType:
    """A slot's ``__main__`` after the blob was loaded; it begins empty."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    if blob is not None:
        load_main(blob)
    return sys.modules["__main__"]


def test_records_are_pickled_by_reference(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shipment = CodeShipment()
    bid = shipment.dumps(program["Bid"](7))
    assert len(bid) < 120
    assert bid == pickle.dumps(program["Bid"](7), protocol=5) or len(bid) <= 120
    main = in_a_slot(monkeypatch, shipment.code_blob())
    assert pickle.loads(bid) == main.Bid(7)
    assert len(pickle.dumps(main.Bid(7), protocol=5)) < 120
    pickle.loads(pickle.dumps(main.Bid.Inner(), protocol=5))


SLOTS = """
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

class Place(NamedTuple):
    x: int
    y: int = 2

class Far(Place):
    __slots__ = ()

class Named(Protocol):
    __slots__ = ()

class Side(Enum):
    __slots__ = ()
    LEFT = 1

class Word(str):
    __slots__ = ()

@dataclass(slots=True)
class Order:
    number: int
    text: str = "x"

@dataclass(slots=True)
class Rush(Order):
    hours: int = 3

class Secret:
    __slots__ = ("__value",)
    def __init__(self):
        self.__value = 7
    def __eq__(self, other):
        return self.__value == other.__value

T = TypeVar("T")

class Box(Generic[T]):
    __slots__ = {"item": "what is in it"}

class Open(Order):
    def __init__(self):
        super().__init__(5)
        self.more = 1
"""


def test_classes_keep_their_slots(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    exec(compile(SLOTS, "program.py", "exec"), program)
    client = sys.modules["__main__"]
    names = ("Order", "Rush", "Secret", "Box", "Open", "Place", "Far", "Named", "Side", "Word")
    classes = [program[name] for name in names]
    shipment = CodeShipment()
    shipment.dumps(classes)
    blob = shipment.code_blob()
    monkeypatch.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})  # as in another process
    main = in_a_slot(monkeypatch, blob)
    records = [main.Order(1), main.Rush(2, "y"), main.Secret(), main.Box[int](), main.Open()]
    assert [hasattr(record, "__dict__") for record in records] == [False, False, False, False, True]
    with pytest.raises(AttributeError):
        records[0].misspelt = 1
    others = [main.Place(1), main.Far(3), main.Side.LEFT, main.Word("w")]
    data = pickle.dumps([*records[:3], records[4], others], protocol=5)
    monkeypatch.setitem(sys.modules, "__main__", client)
    order, rush, secret, opened, others = pickle.loads(data)
    assert others == [program["Place"](1), program["Far"](3), program["Side"].LEFT, program["Word"]("w")]
    assert [type(value).__name__ for value in others] == ["Place", "Far", "Side", "Word"]
    assert (order, rush, secret) == (program["Order"](1), program["Rush"](2, "y"), program["Secret"]())
    assert (type(opened), opened.number, opened.more) == (program["Open"], 5, 1)


def test_a_lambda_travels_with_what_it_calls(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shipment = CodeShipment()
    chain = shipment.dumps(program["by_lambda"])
    main = in_a_slot(monkeypatch, shipment.code_blob())
    function = pickle.loads(chain)
    assert function(5) == 15
    # the record's class is the one of the slot's __main__, although only helper() names it
    assert type(main.helper(1)) is main.Bid
    assert pickle.loads(pickle.dumps(main.helper(1))) == main.Bid(3)


def test_what_nobody_needs_may_be_unpicklable(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shipment = CodeShipment()
    shipment.dumps(program["helper"])
    main = in_a_slot(monkeypatch, shipment.code_blob())
    assert hasattr(main, "Unused")
    assert not hasattr(main, "needs_lock")


def test_a_needed_function_that_holds_a_lock_is_named(program: dict[str, Any]) -> None:
    shipment = CodeShipment()
    shipment.dumps(program["needs_lock"])
    with pytest.raises(SerializationError, match=r"__main__\.needs_lock.*global 'LOCK'.*_thread\.lock.*open\(\)"):
        shipment.code_blob()


def test_the_attribute_of_an_operator_is_named(program: dict[str, Any]) -> None:
    fine = OperatorSpec("0" * 32, "Fine", OperatorKind.MAP, function=len)
    bad = OperatorSpec("1" * 32, "Counts", OperatorKind.MAP, function=program["Counter"]())
    with pytest.raises(SerializationError, match=r"operator 'Counts'.*Counter\.lock is a _thread\.lock"):
        CodeShipment().dumps_chain(ChainSpec([fine, bad], [[1], []], []))


def test_a_captured_view_keeps_its_elements() -> None:
    view = memoryview(array.array("d", [1.5, 2.5]))
    chain = CodeShipment().dumps(lambda: view)
    assert pickle.loads(chain)() == view


def test_a_captured_variable_is_named() -> None:
    lock = threading.Lock()
    spec = OperatorSpec("0" * 32, "Locks", OperatorKind.MAP, function=lambda x: (lock, x))
    with pytest.raises(SerializationError, match="captured variable 'lock'"):
        CodeShipment().dumps_chain(ChainSpec([spec], [[]], []))


def test_a_module_that_slots_cannot_import_travels_like_main(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_in_this_process")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.__file__ = "/nowhere/only_in_this_process.py"
    exec("class Thing:\n    pass\n\ndef make():\n    return Thing()\n", module.__dict__)
    shipment = CodeShipment()
    data = shipment.dumps(module.make)
    assert len(data) < 100
    content = pickle.loads(shipment.code_blob() or b"")
    assert set(content["only_in_this_process"]) == {"make", "Thing"}
    assert type(content["only_in_this_process"]["make"]()) is content["only_in_this_process"]["Thing"]


def test_importable_modules_stay_where_they_are() -> None:
    shipment = CodeShipment()
    data = shipment.dumps([threading.Timer, pytest.raises, OperatorSpec])
    assert len(data) < 200
    assert pickle.loads(data)[2] is OperatorSpec


def test_an_edited_class_replaces_the_old_one(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first = CodeShipment()
    first.dumps(program["helper"])
    first.code_blob()
    exec("class Bid:\n    edited = True\n    def __init__(self, price):\n        self.price = price\n", program)
    second = CodeShipment()
    data = second.dumps(program["helper"])
    main = in_a_slot(monkeypatch, second.code_blob())
    assert pickle.loads(data)(1).edited
    assert main.Bid.edited


HOLLOW = """
def fail():
    raise RuntimeError("there is no session here")

class Session:
    def __reduce__(self):
        return fail, ()

SESSION = Session()

def show():
    return SESSION

def main():
    show()
    return helper(1)

class Order:
    def item(self):
        return Item()

class Item(Unused):
    def order(self):
        return Order()

SEEN = set()

def is_new(x):
    if x in SEEN:
        return False
    SEEN.add(x)
    return True
"""


def test_what_pickles_and_does_not_load_fails_only_who_uses_it(
    program: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exec(compile(HOLLOW, "program.py", "exec"), program)
    order = pickle.dumps(program["Order"]())
    shipment = CodeShipment()
    shipment.dumps(program["helper"])
    main = in_a_slot(monkeypatch, shipment.code_blob())
    assert main.helper(2).price == 6
    # state of before, say: its classes refer to each other, and to one more, and each of them is there once
    unpickled = pickle.loads(order)
    assert type(unpickled) is main.Order
    assert type(unpickled.item()) is main.Item
    assert type(unpickled.item().order()) is main.Order
    assert main.Item.__mro__[1] is main.Unused
    with pytest.raises(ProgramError, match=r"__main__\.show.*can't be loaded.*there is no session here"):
        main.show()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = main.nothing
    with pytest.raises(ProgramError, match=r"__main__\.main.*__main__\.show.*there is no session here"):
        main.main()


def test_loaded_again_globals_begin_anew_and_classes_stay(
    program: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exec(compile(HOLLOW, "program.py", "exec"), program)
    shipment = CodeShipment()
    chain = shipment.dumps([program["is_new"], program["Bid"]])
    blob = shipment.code_blob()
    in_a_slot(monkeypatch, blob)
    is_new, bid = pickle.loads(chain)
    assert [is_new(1), is_new(1)] == [True, False]
    in_a_slot(monkeypatch, blob)
    again, same = pickle.loads(chain)
    assert again(1), "a record that comes again is new"
    assert not is_new(1)
    assert same is bid
    assert pickle.loads(pickle.dumps(bid(3))) == same(3)
