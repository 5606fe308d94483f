"""The namespace as XML."""

from __future__ import annotations

from oncebus.atom import markup
from oncebus.atom.descriptions import NAMESPACES
from oncebus.entities import Catalogue, Tier
from oncebus.http.times import iso8601
from oncebus.management.runtime import namespace_times


def written_namespace(catalogue: Catalogue, now: int) -> tuple[str, int, int]:
    """Return the element that describes a namespace, the time of its creation and that of its last change."""
    namespace = catalogue.namespace
    created, updated = namespace_times(catalogue, now)
    content = [markup.field("CreatedTime", iso8601(created)), markup.field("MessagingSKU", namespace.tier.value)]
    if namespace.tier is Tier.PREMIUM:
        # Clients require this element in the Premium tier. The broker runs on one machine.
        content.append(markup.field("MessagingUnits", "1"))
    content += [
        markup.field("ModifiedTime", iso8601(updated)),
        markup.field("Name", namespace.name),
        markup.field("NamespaceType", "Messaging"),
    ]
    return markup.tag("NamespaceInfo", "".join(content), NAMESPACES), created, updated
