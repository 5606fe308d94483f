"""The versions of the catalogue in PostgreSQL. The head of the log names the one that holds."""

from __future__ import annotations

from functools import lru_cache

from oncebus.model.entities import Catalogue
from oncebus.model.entities.catalogue_files import CatalogueFileError
from oncebus.model.entities.catalogue_json import catalogue_from_json, catalogue_to_json
from oncebus.postgres import DatabaseConflict, Link


class CatalogueChanged(CatalogueFileError):
    """Another gateway has published a version meanwhile. Load it, and repeat the change."""


class PostgresCatalogues:
    """See `CatalogueVersions`. Any number of gateways may publish: of two that follow the same version, one does."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def latest(self) -> Catalogue | None:
        """Return the highest version; None if nothing was ever published."""
        version = self._link.value("SELECT catalogue FROM head")
        return self.load(int(version)) if version else None

    def load(self, version: int) -> Catalogue:
        """Return a version. Raises `CatalogueFileError` if it is not there."""
        content = self._link.value("SELECT content FROM catalogue WHERE version = ?", (version,))
        if content is None:
            raise CatalogueFileError(f"Version {version} of the catalogue is missing in '{self._link.place}'.")
        return _parse(content)

    def publish(self, catalogue: Catalogue) -> None:
        """Make the version after the latest one durable, in an exact place among the appends.

        No row that was checked under an earlier version comes after this. Raises `CatalogueChanged` if the latest
        version is not the one before.
        """
        content = catalogue_to_json(catalogue).encode("ascii")
        self._link.begin()
        try:
            changed = self._link.value(
                "UPDATE head SET catalogue = ? WHERE catalogue = ? RETURNING 1",
                (catalogue.version, catalogue.version - 1),
            )
            if changed is None:
                raise CatalogueChanged(
                    f"Version {catalogue.version - 1} of the catalogue is not the latest one any more."
                )
            self._link.execute("INSERT INTO catalogue VALUES (?, ?)", (catalogue.version, content))
            self._link.commit()
        except DatabaseConflict as error:
            self._link.roll_back()
            raise CatalogueChanged(str(error)) from error
        except BaseException:
            self._link.roll_back()
            raise

    def delete_below(self, version: int) -> None:
        """Delete all versions below this one, but never the latest."""
        self._link.execute(
            "DELETE FROM catalogue WHERE version < ? AND version < (SELECT catalogue FROM head)", (version,)
        )


@lru_cache(maxsize=16)
def _parse(content: bytes) -> Catalogue:
    return catalogue_from_json(content)
