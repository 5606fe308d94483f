"""The connection string that a client is given."""

from __future__ import annotations

from oncebus.access.authorization_rule import AuthorizationRule, WhichKey


def connection_string(
    host: str,
    port: int | None,
    rule: AuthorizationRule,
    emulator: bool,
    *,
    entity: str | None = None,
    which: WhichKey = WhichKey.PRIMARY,
) -> str:
    """All that a client needs, the key included: not for logs.

    With `emulator` clients speak without TLS. A rule of an entity's own needs the entity.
    """
    place = f"[{host}]" if ":" in host and not host.startswith("[") else host
    if port is not None:
        place = f"{place}:{port}"
    parts = [
        f"Endpoint=sb://{place}" if emulator else f"Endpoint=sb://{place}/",
        f"SharedAccessKeyName={rule.name}",
        f"SharedAccessKey={rule.key(which)}",
    ]
    if entity is not None:
        parts.append(f"EntityPath={entity}")
    if emulator:
        # Clients compare with exactly this text.
        parts.append("UseDevelopmentEmulator=true")
    return ";".join(parts)
