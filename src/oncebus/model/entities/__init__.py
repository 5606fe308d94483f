"""Queues, topics, subscriptions and rules: their descriptions, the limits on them, and the durable catalogue."""

from oncebus.model.entities.catalogue import Catalogue
from oncebus.model.entities.catalogue_files import CatalogueFiles
from oncebus.model.entities.descriptions import (
    CorrelationFilter,
    Entity,
    EntityStatus,
    FalseFilter,
    Filter,
    Namespace,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
)
from oncebus.model.entities.errors import (
    BadRequest,
    EntityDisabled,
    EntityError,
    InvalidOperation,
    NotFound,
    OutOfRange,
    QuotaExceeded,
)
from oncebus.model.entities.filter_values import FilterValue
from oncebus.model.entities.names import path_of_address, subscription_path
from oncebus.model.entities.partitions import decided_partition, effective_partition_key, partition_of
from oncebus.model.entities.sending import (
    check_id,
    check_message,
    check_partition_key,
    check_receiver,
    may_send,
)
from oncebus.model.entities.timespans import NO_LIMIT, dotnet_timespan, iso_timespan, parse_timespan
