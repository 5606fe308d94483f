"""The files that name entities to have at the start.

`serve` reads them before it starts anything, so that a file that cannot be used is an error at once. What each kind of
file needs is imported only where there is one: every import here delays the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncebus.settings import Settings

if TYPE_CHECKING:
    from oncebus.emulator.config_file import ConfigFile
    from oncebus.serve.entities_file import EntitiesFile

    StartFile = ConfigFile | EntitiesFile


def files_at_start(settings: Settings, entities: Path | None) -> list[StartFile]:
    """Read the files that name entities to have at the start. Raises `OncebusError` for one that cannot be used."""
    found: list[StartFile] = []
    if settings.config is not None:
        from oncebus.emulator.config_file import ConfigFile

        found.append(ConfigFile.read(settings.config))
    if entities is not None:
        from oncebus.serve.entities_file import EntitiesFile

        found.append(EntitiesFile.read(entities))
    return found
