"""How session ids are compared: without regard to letter case, as Azure Service Bus does."""

from __future__ import annotations


def session_key(session: str) -> str:
    """Return the form in which session ids are compared: those that differ only in letter case are the same session.

    Each character is upper-cased by itself, as .NET's `OrdinalIgnoreCase` does. A character whose upper case is several
    characters, or is ASCII while it is not, stays as it is.
    """
    return session.upper() if session.isascii() else "".join(map(_upper, session))


def _upper(character: str) -> str:
    if character.isascii():
        return character.upper()
    # The title case is the one-character form of some letters whose upper case has two.
    for found in (character.upper(), character.title()):
        if len(found) == 1 and not found.isascii():
            return found
    return character
