"""Reads the files that list entities to create at the start.

`serve` reads them before it starts anything, so that a bad file is reported at once. The modules for each kind of file
are imported only if there is such a file, because every import delays the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncebus.values.settings import Settings

if TYPE_CHECKING:
    from oncebus.protocols.management.entity_file import EntityFile

_IN_SETTINGS = "Setting 'config_json'"


def files_at_start(settings: Settings, entities: Path | None) -> list[EntityFile]:
    """Return the files of the settings and of `--entities`. Raises `OncebusError` if one cannot be used."""
    found: list[EntityFile] = []
    if settings.config is None and settings.config_json is None and entities is None:
        return found
    from oncebus.programs.serve import entities_file
    from oncebus.protocols.emulator import config
    from oncebus.protocols.management.documents import parse_named
    from oncebus.protocols.management.entity_file import EntityFile

    if settings.config is not None:
        found.append(EntityFile.read(settings.config, config.WHAT, config.read_config))
    if settings.config_json is not None:
        document = parse_named(settings.config_json, _IN_SETTINGS, trailing_commas=True)
        found.append(EntityFile.of(document, _IN_SETTINGS, config.read_config))
    if entities is not None:
        found.append(EntityFile.read(entities, entities_file.WHAT, entities_file.read_entities))
    return found
