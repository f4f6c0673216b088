from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import pytest

from firesteel.core.errors import ProtocolError
from firesteel.protocol import messages
from firesteel.protocol.message import Message

ALL = [
    cls for _, cls in inspect.getmembers(messages, inspect.isclass) if issubclass(cls, Message) and cls is not Message
]


def sample(cls: type[Message]) -> Message:
    hints = {f.name: f.type for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for name, hint in hints.items():
        text = str(hint)
        if text in ("str", "str | None"):
            values[name] = "text"
        elif text in ("int", "int | None"):
            values[name] = 7
        elif text == "float":
            values[name] = 2.5
        elif text == "bool":
            values[name] = True
        elif text.startswith("Mapping[str, int]"):
            values[name] = {"k": 1}
        elif text.startswith("Mapping[str, str]"):
            values[name] = {"k": "v"}
        elif text.startswith("Mapping[str, tuple[str"):
            values[name] = {"k": ("x", "y")}
        elif text.startswith("Mapping[str, Mapping"):
            values[name] = {"k": {"n": 1.5}}
        elif text.startswith("Mapping"):
            values[name] = {"k": [1, None]}
        elif text.startswith("tuple[str"):
            values[name] = ("a", "b")
        elif text.startswith("tuple[Mapping"):
            values[name] = ({"a": 1},)
        else:
            inner = text.removeprefix("tuple[").split(",")[0]
            values[name] = (sample(getattr(messages, inner)),)
    return cls(**values)


@pytest.mark.parametrize("cls", ALL, ids=lambda c: c.__name__)
def test_every_message_survives_json(cls: type[Message]) -> None:
    message = sample(cls)
    assert cls.from_plain(json.loads(json.dumps(message.to_plain()))) == message


@pytest.mark.parametrize("cls", ALL, ids=lambda c: c.__name__)
def test_every_missing_or_wrong_field_is_named(cls: type[Message]) -> None:
    plain = sample(cls).to_plain()
    if cls is messages.JobDetails:  # travels as the archive itself
        with pytest.raises(ProtocolError, match=r"JobDetails: .*a JSON object is expected"):
            cls.from_plain([])
        return
    for f in dataclasses.fields(cls):
        rest = {k: v for k, v in plain.items() if k != f.name}
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            with pytest.raises(ProtocolError, match=f"{f.name!r} is missing"):
                cls.from_plain(rest)
        else:
            cls.from_plain(rest)
        with pytest.raises(ProtocolError, match=rf"{cls.__name__}\.{f.name}"):
            cls.from_plain({**plain, f.name: object()})


def test_truth_values_are_no_numbers_and_unknown_fields_are_ignored() -> None:
    good = messages.Requirement("default", 2).to_plain()
    assert messages.Requirement.from_plain({**good, "new": 1}) == messages.Requirement("default", 2)
    with pytest.raises(ProtocolError, match=r"Requirement\.count: expected `int`, got `bool`"):
        messages.Requirement.from_plain({"profile": "default", "count": True})
    with pytest.raises(ProtocolError, match=r"OfferSlots\.slots\[0\]|SlotOffer"):
        messages.OfferSlots.from_plain({"taskmanager_id": "t", "taskmanager_address": "a", "slots": [3]})
