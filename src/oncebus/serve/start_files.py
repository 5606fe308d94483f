"""The files that name entities to have at the start.

`serve` reads them before it starts anything, so that a file that cannot be used is an error at once. What each kind of
file needs is imported only where there is one: every import here delays the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncebus.settings import Settings

if TYPE_CHECKING:
    from oncebus.management.entity_file import EntityFile


def files_at_start(settings: Settings, entities: Path | None) -> list[EntityFile]:
    """Read the files that name entities to have at the start. Raises `OncebusError` for one that cannot be used."""
    found: list[EntityFile] = []
    if settings.config is None and entities is None:
        return found
    from oncebus.emulator import config
    from oncebus.management.entity_file import EntityFile
    from oncebus.serve import entities_file

    if settings.config is not None:
        found.append(EntityFile.read(settings.config, config.WHAT, config.read_config))
    if entities is not None:
        found.append(EntityFile.read(entities, entities_file.WHAT, entities_file.read_entities))
    return found
