"""Connection strings for clients."""

from __future__ import annotations

from oncebus.model.access.authorization_rule import AuthorizationRule, WhichKey


def connection_string(
    host: str,
    port: int | None,
    rule: AuthorizationRule,
    emulator: bool,
    *,
    entity: str | None = None,
    which: WhichKey = WhichKey.PRIMARY,
) -> str:
    """Return a connection string for a client. It contains the key, so it must not be logged.

    With `emulator`, clients connect without TLS. The rule of an entity needs `entity`.
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
        # Clients look for exactly this text.
        parts.append("UseDevelopmentEmulator=true")
    return ";".join(parts)
