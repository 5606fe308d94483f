"""Parses sizes as people write them, and counts the characters of a text as .NET does."""

from __future__ import annotations

import re

MIB = 1 << 20
GIB = 1 << 30

_SIZE = re.compile(r"(?P<number>[0-9]{1,18})\s*(?P<unit>[A-Za-z]*)")
_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    name: base**power
    for power, letter in enumerate("kmgt", start=1)
    for name, base in ((f"{letter}b", 1000), (f"{letter}ib", 1024))
}


def parse_size(text: str) -> int:
    """Return the number of bytes in a text such as '4 GiB', '500 MB' or '1048576'.

    Raises `ValueError` if the text is not a size, or if the size is zero or does not fit in 63 bits.
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(match["number"]) * _UNITS.get(match["unit"].lower(), 0) if match else 0
    if not 0 < size < 1 << 63:
        raise ValueError("Not a size: write it like '4 GiB', or in bytes.")
    return size


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 units in a text: the characters as Azure Service Bus counts them."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
