"""Reads the files that list entities to create at the start.

`serve` reads them before it starts anything, so that a bad file is reported at once. The modules for each kind of file
are imported only if there is such a file, because every import delays the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncebus.settings import Settings

if TYPE_CHECKING:
    from oncebus.management.entity_file import EntityFile


def files_at_start(settings: Settings, entities: Path | None) -> list[EntityFile]:
    """Return the files of the settings and of `--entities`. Raises `OncebusError` if one cannot be used."""
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
