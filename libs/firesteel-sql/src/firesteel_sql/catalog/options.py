"""Options of a catalog: texts, and refused by near names if nobody knows them."""

from __future__ import annotations

from collections.abc import Mapping

from firesteel_sql.catalog.catalog import CatalogError, near


class CatalogOptions:
    """The options of one catalog.

    Args:
        catalog: its name, for errors.
        options: behind WITH; ``type`` is not among them.
    """

    def __init__(self, catalog: str, options: Mapping[str, str]) -> None:
        self._catalog, self._options = catalog, dict(options)
        self._known: set[str] = set()

    def text(self, key: str, default: str | None = None) -> str | None:
        """An option as it is written."""
        self._known.add(key)
        return self._options.get(key, default)

    def required(self, key: str) -> str:
        """An option that has to be there.

        Raises:
            CatalogError: it is not.
        """
        value = self.text(key)
        if value is None:
            raise CatalogError(f"catalog {self._catalog}: the option '{key}' is missing")
        return value

    def refuse_unknown(self) -> None:
        """Refuse options that nobody has asked for.

        Raises:
            CatalogError: there is one.
        """
        for key in self._options:
            if key not in self._known:
                raise CatalogError(f"catalog {self._catalog}: there is no option '{key}'{near(key, self._known)}")
