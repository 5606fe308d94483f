"""A transport for Celery and kombu: `import oncebus.celery`, and broker URLs that start with `oncebus://` work.

It is based on kombu's transport for Azure Service Bus, which always uses TLS and the default ports; a local broker may
have neither. This one takes the ports from the URL: `oncebus://RULE:KEY@localhost:5672?http=5300`. The query names the
port of HTTP, on which kombu creates, counts and deletes queues.

It needs `pip install celery 'kombu[azureservicebus]'`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient
from kombu.transport import TRANSPORT_ALIASES, azureservicebus

SCHEME = "oncebus"
_AMQP_PORT, _HTTP_PORT = 5672, 5300
_FORM = f"{SCHEME}://RULE:KEY@HOST[:PORT][?http=PORT]"


class BrokerUrl(NamedTuple):
    """The parts of a broker URL."""

    host: str
    amqp_port: int
    http_port: int
    rule: str
    key: str

    def connection_string(self, port: int) -> str:
        """Return the connection string for a port of the broker."""
        credentials = f"SharedAccessKeyName={self.rule};SharedAccessKey={self.key}"
        return f"Endpoint=sb://{self.host}:{port};{credentials};UseDevelopmentEmulator=true"


def parse(url: str) -> BrokerUrl:
    """Parse a broker URL. The key may contain any characters, including `/` and `@`. Raises `ValueError`."""
    credentials, _, place = url.removeprefix(f"{SCHEME}://").rpartition("@")
    rule, _, key = credentials.partition(":")
    server, _, query = place.rstrip("/").partition("?")
    host, _, amqp_port = server.rstrip("/").partition(":")
    http_port = parse_qs(query).get("http", [str(_HTTP_PORT)])[0]
    if not (rule and key and host):
        raise ValueError(f"The broker URL has no rule, key or host. Write {_FORM}.")
    try:
        return BrokerUrl(host, int(amqp_port or _AMQP_PORT), int(http_port), rule, key)
    except ValueError:
        raise ValueError(f"The broker URL has a port that is not a number, at '{place}'. Write {_FORM}.") from None


class PlainTransport(RequestsTransport):
    """Sends the requests of the administration client over plain HTTP, although the client always writes https."""

    def send(self, request: Any, **options: Any) -> Any:
        """See `RequestsTransport`."""
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


class Channel(azureservicebus.Channel):
    """kombu's channel for Azure Service Bus, to an Oncebus broker."""

    def _try_parse_connection_string(self) -> None:
        broker = parse(self.conninfo.hostname)
        self._connection_string = broker.connection_string(broker.amqp_port)
        self._administration_string = broker.connection_string(broker.http_port)

    @cached_property
    def queue_mgmt_service(self) -> ServiceBusAdministrationClient:
        """Return the client that creates, counts and deletes queues."""
        return ServiceBusAdministrationClient.from_connection_string(
            self._administration_string, transport=PlainTransport()
        )


class Transport(azureservicebus.Transport):
    """kombu's transport for Azure Service Bus, to an Oncebus broker."""

    Channel = Channel

    @classmethod
    def as_uri(cls, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the broker URL, by default without the key."""
        broker = parse(uri)
        key = broker.key if include_password else mask
        return f"{SCHEME}://{broker.rule}:{key}@{broker.host}:{broker.amqp_port}?http={broker.http_port}"


TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"
