"""Ships the code of a program to the slots: which classes and functions travel, and how.

Classes and functions of modules that a slot can import travel as their names. Those of ``__main__`` (a script, a
notebook, the plain REPL), and of modules that only this process can import, travel once for each job in one blob, and
everything else refers to them by name: records and state are plain pickles, and no old class is frozen into state.
A slot puts them into modules of the same names; it never runs the script again.
"""

from __future__ import annotations

import io
import sys
from abc import ABCMeta
from collections import ChainMap
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any, ClassVar

import cloudpickle

from firesteel.client.unpicklable import explain
from firesteel.core.errors import SerializationError
from firesteel.core.pickling import reduce_view
from firesteel.graph.specs import ChainSpec
from firesteel.runtime.slot.user_code import DEFERRED

_OPTIONAL_LIMIT = 1024 * 1024
_PLAIN_METACLASSES = (type, ABCMeta)
"""Metaclasses whose classes can be rebuilt with their ``__slots__``; others may make slots themselves, and refuse."""


class CodeShipment:
    """Pickles what one job needs.

    Args:
        modules: loaded modules by name; ``sys.modules`` unless a test says otherwise.
    """

    def __init__(self, modules: dict[str, ModuleType] | None = None) -> None:
        self._modules = sys.modules if modules is None else modules
        self._importable: dict[str, bool] = {}
        self._reached: dict[tuple[str, str], Any] = {}

    def dumps_chain(self, chain: ChainSpec) -> bytes:
        """Pickle a chain.

        Raises:
            SerializationError: names the operator and the attribute that can't be pickled, and what to do.
        """
        try:
            return self.dumps(chain)
        except Exception as error:  # pickling runs the user's __reduce__ and __getstate__, here and below
            for operator in chain.operators:
                try:
                    self.dumps(operator)
                except Exception as inner:
                    raise SerializationError(
                        f"operator {operator.name!r} can't be sent to a slot: "
                        f"{explain(operator.function, self.dumps, inner)}"
                    ) from inner
            raise SerializationError(f"a chain can't be sent to a slot: {error}") from error

    def dumps(self, value: Any) -> bytes:
        """Pickle a value; objects of ``__main__`` become references and are noted for ``code_blob``."""
        return _dump(value, self._by_reference)

    def code_blob(self) -> bytes | None:
        """The blob of everything that was noted so far, and of the rest of ``__main__`` where it can be pickled.

        Its content is ``{module name: {name: object}}``; None when there is nothing to send. The rest, to which state
        or records may refer, is there as ``{DEFERRED: {name: pickle}}``: it is loaded only when somebody asks for it,
        since what pickles may not load (a session of Spark Connect).

        Raises:
            SerializationError: an object that the job needs can't be pickled.
        """
        content = dict(self._reached)
        # Pickling the content by value reaches further classes and functions, which have to travel as well: repeat
        # until a round reaches nothing new.
        while True:
            blob, shipped = self._dump_by_value(content)
            if shipped.keys() <= content.keys():
                break
            content.update(shipped)
        deferred = self._deferred({key[1]: value for key, value in self._of_main() if key not in content})
        if deferred:
            blob, _ = self._dump_by_value(content, deferred)
        return blob if content or deferred else None

    def _deferred(self, members: dict[str, Any]) -> dict[str, bytes]:
        """Pickles of members of ``__main__``, each of which a slot can load alone: it refers to others by name.

        Those that refer to each other in a circle share a pickle. What can't be pickled, or is large, stays behind.
        """
        needs = {name: needed for name, value in members.items() if (needed := self._needs(name, value)) is not None}
        reached = {name: _closure(name, needs) for name in needs}
        pickles: dict[str, bytes] = {}
        for name in needs:
            if name not in pickles:
                circle = {member for member in reached[name] if name in reached[member]} | {name}
                data = _dump({member: members[member] for member in circle}, self._is_outside(circle))
                pickles.update(dict.fromkeys(circle, data))
        return pickles

    def _needs(self, name: str, value: Any) -> set[str] | None:
        """The other members of ``__main__`` that one refers to; None if it stays behind."""
        needed: set[str] = set()
        is_outside = self._is_outside({name})

        def note(part: Any) -> bool:
            if not is_outside(part):
                return False
            needed.add(part.__qualname__.partition(".")[0])
            return True

        try:
            return needed if len(_dump({name: value}, note)) <= _OPTIONAL_LIMIT else None
        except Exception:  # it is not needed: leave it behind
            return None

    def _is_outside(self, names: set[str]) -> Callable[[Any], bool]:
        """A predicate: an object travels by its name, and is none of these members of ``__main__``."""

        def is_outside(value: Any) -> bool:
            key = self._shippable(value)
            return key is not None and not (key[0] == "__main__" and key[1] in names)

        return is_outside

    def _dump_by_value(
        self, content: dict[tuple[str, str], Any], deferred: dict[str, bytes] | None = None
    ) -> tuple[bytes, dict[tuple[str, str], Any]]:
        shipped: dict[tuple[str, str], Any] = {}

        def note(value: Any) -> bool:
            key = self._shippable(value)
            if key is not None:
                shipped[key] = _top_of(self._modules[key[0]], key[1])
            return False

        tree: dict[str, dict[str, Any]] = {}
        for (module, name), value in content.items():
            tree.setdefault(module, {})[name] = value
        if deferred:
            tree[DEFERRED] = deferred
        registered = [m for m in {key[0] for key in content} if m != "__main__" and m in self._modules]
        for name in registered:
            cloudpickle.register_pickle_by_value(self._modules[name])
        try:
            return _dump(tree, note), shipped
        except Exception as error:  # the user's __reduce__ may raise anything; it is named below
            for (module, name), value in content.items():
                try:
                    _dump(value, lambda _: False)
                except Exception as inner:
                    raise SerializationError(
                        f"{module}.{name}, which the job uses, can't be sent to a slot: "
                        f"{explain(value, lambda v: _dump(v, lambda _: False), inner)}"
                    ) from inner
            raise SerializationError(f"the program's own code can't be sent to a slot: {error}") from error
        finally:
            for name in registered:
                cloudpickle.unregister_pickle_by_value(self._modules[name])

    def _of_main(self) -> Iterator[tuple[tuple[str, str], Any]]:
        main = self._modules.get("__main__")
        for name, value in list(vars(main).items()) if main else ():
            if self._shippable(value) == ("__main__", name):
                yield ("__main__", name), value

    def _by_reference(self, value: Any) -> bool:
        key = self._shippable(value)
        if key is None:
            return False
        self._reached[key] = _top_of(self._modules[key[0]], key[1])
        return True

    def _shippable(self, value: Any) -> tuple[str, str] | None:
        """(module, top-level name) under which a slot will find this class or function; None = it has no such name."""
        if not isinstance(value, type | FunctionType):
            return None
        module_name = getattr(value, "__module__", None)
        if not isinstance(module_name, str) or (module_name != "__main__" and self._is_importable(module_name)):
            return None
        module = self._modules.get(module_name)
        resolved: Any = module
        for part in value.__qualname__.split("."):
            resolved = getattr(resolved, part, None)
        return (module_name, value.__qualname__.partition(".")[0]) if resolved is value else None

    def _is_importable(self, name: str) -> bool:
        importable = self._importable.get(name)
        if importable is None:
            importable = self._importable[name] = _finds(name, self._modules.get(name))
        return importable


def _closure(name: str, needs: dict[str, set[str]]) -> set[str]:
    """All names that a name refers to, directly or through others; contains itself only if it is part of a circle."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        for referenced in needs[waiting.pop()]:
            if referenced in needs and referenced not in reached:
                reached.add(referenced)
                waiting.append(referenced)
    return reached


def _top_of(module: ModuleType, name: str) -> Any:
    return getattr(module, name)


def _finds(name: str, module: ModuleType | None) -> bool:
    """Whether a new process with the same ``sys.path`` would import the same file under this name."""
    if name in sys.builtin_module_names:
        return True
    path: Any = None
    spec = None
    parts = name.split(".")
    for depth in range(len(parts)):
        try:
            spec = PathFinder.find_spec(".".join(parts[: depth + 1]), path)
        except (ImportError, AttributeError, ValueError):
            spec = None
        if spec is None:
            # frozen modules, and packages whose finders are not path based (editable installs), are found by others
            loader = getattr(getattr(module, "__spec__", None), "loader", None)
            return module is None or getattr(module, "__file__", None) is None or _is_installed_finder(name, loader)
        path = spec.submodule_search_locations
    here = getattr(module, "__file__", None)
    return here is None or spec is None or spec.origin is None or spec.origin == here


def _is_installed_finder(name: str, loader: Any) -> bool:
    for finder in sys.meta_path:
        if finder is PathFinder or "_pytest" in type(finder).__module__:
            continue
        find = getattr(finder, "find_spec", None)
        try:
            if find is not None and loader is not None and find(name, None) is not None:
                return True
        except (ImportError, AttributeError, ValueError):
            continue
    return False


def _dump(value: Any, by_reference: Callable[[Any], bool]) -> bytes:
    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = ChainMap({memoryview: reduce_view}, cloudpickle.Pickler.dispatch_table)

        def reducer_override(self, obj: Any) -> Any:
            if by_reference(obj):
                return NotImplemented
            reduced = super().reducer_override(obj)
            if type(obj) in _PLAIN_METACLASSES and "__slots__" in vars(obj) and isinstance(reduced, tuple):
                return _with_slots(obj, reduced)
            return reduced

    stream = io.BytesIO()
    Pickler(stream, protocol=5).dump(value)
    return stream.getvalue()


def _with_slots(cls: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Change cloudpickle's recipe for a class, so that the class is created with its ``__slots__``.

    cloudpickle sets the attribute only afterwards, when it has no effect: objects then have a ``__dict__``, and
    their pickles do not load where the class is the original, as in the client.
    """
    make, arguments, state, *remaining = reduced
    if make is not cloudpickle.cloudpickle._make_skeleton_class or issubclass(cls, tuple):
        return reduced  # a tuple can have no slots, and a NamedTuple adds its empty ones itself
    metaclass, name, bases, namespace, *further_arguments = arguments
    namespace = {**namespace, "__slots__": vars(cls)["__slots__"]}
    attributes, slot_state = state  # private slots are left in there by cloudpickle, which can't pickle them
    attributes = {key: value for key, value in attributes.items() if not isinstance(value, MemberDescriptorType)}
    return make, (metaclass, name, bases, namespace, *further_arguments), (attributes, slot_state), *remaining
