"""What a package of ours says of names that PyFlink has, or had, and that are not there.

The table beside this file is made by ``tools/pyflink_names.py``: module, name, and what to do instead.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module, resources
from importlib.abc import InspectLoader
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from firesteel.core.plugins import missing_plugin

_PACKAGE: Final = "firesteel"


def missing_names(module: str) -> Callable[[str], NoReturn]:
    """A module's ``__getattr__`` that answers a name of PyFlink's with what to use instead.

    Args:
        module: ``__name__`` of the module.
    """

    def __getattr__(name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        hint = hint_for(module, name)
        if hint is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        # `from module import name` shows the text of an ImportError, and drops that of an AttributeError.
        raise ImportError(f"cannot import name {name!r} from {module!r}: {hint}", name=name)

    return __getattr__


def reexports(module: str) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that finds names in other modules when they are asked for, and ``__all__``.

    The names are those that the module imports below ``if TYPE_CHECKING``: its source is read for the first name. The
    other modules are those below a package, or of a plug-in that need not be installed.

    Args:
        module: ``__name__`` of the module.

    Raises:
        ModuleNotFoundError: by the function that is returned: the plug-in is not installed; says how it is.
    """
    missing = missing_names(module)

    @cache
    def places() -> dict[str, str]:
        spec = find_spec(module)
        source = spec.loader.get_source(module) if spec and isinstance(spec.loader, InspectLoader) else None
        if source is None:
            raise ImportError(f"the source of {module} is not there, which names its modules: import these instead")
        blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted(places())
        if name.startswith("_") or name not in places():
            return missing(name)
        try:
            owner = import_module(places()[name])
        except ModuleNotFoundError as error:
            missing_distribution = missing_plugin(error.name, module.rpartition(".")[2])
            if missing_distribution is None:
                raise
            raise ModuleNotFoundError(f"{name} is in {missing_distribution}", name=error.name) from None
        return getattr(owner, name)

    return __getattr__


def hint_for(module: str, name: str) -> str | None:
    """What to do where PyFlink has a name in a module, or in one below it; None if it has not.

    Args:
        module: of ours.
        name: that is not there.
    """
    rows = _table().get(name, {})
    inner = module.removeprefix(_PACKAGE).removeprefix(".")
    here = rows.get(inner)
    if here:
        return here
    places = sorted(place for place, instead in rows.items() if not instead and place != inner)
    if places:
        return f"it is in {_PACKAGE}.{places[0]}"
    below = [instead for place, instead in rows.items() if place.startswith(f"{inner}.") and instead]
    return below[0] if below else None


@cache
def _table() -> dict[str, dict[str, str]]:
    """Name -> module without the package -> what to do instead; empty where the name is there."""
    table: dict[str, dict[str, str]] = {}
    lines = resources.files("firesteel.core").joinpath("pyflink_names.tsv").read_text("utf-8").splitlines()
    for line in lines:
        module, name, instead = line.split("\t")
        table.setdefault(name, {})[module] = instead
    return table
