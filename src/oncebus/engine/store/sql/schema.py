"""The schema of the store's SQLite database.

A message is one row of `message` (small, rewritten when it is locked and put back) and one of `content` (large, written
once), with the same id. Copies of one message can share a content: then `message.content` is negative, the content has
the id of the first copy, and `shared` counts the copies. The count is not in `content`, because SQLite rewrites whole
rows. A copy that gets a head of its own afterwards has a content with a very high id.

The index `next` finds the next message for a receiver: `session_key` is empty if the entity does not require sessions.
Numbers in conditions are those of `Stage` and `SubQueue`.

In `origin`, `settled` is the last commit that may hold a row with this origin. Rows of `pending` have the
origin (`TRANSACTION`, number).
"""

from __future__ import annotations

VERSION = 1

APPLICATION = 0x6F6E6362
"""The application id in the file's header. It distinguishes a store from other databases."""

TABLES = """
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    entity BIGINT NOT NULL,
    sub_queue SMALLINT NOT NULL,
    stage SMALLINT NOT NULL,
    session_key TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    enqueued_sequence BIGINT NOT NULL,
    enqueued BIGINT NOT NULL,
    expires BIGINT,
    scheduled BIGINT,
    deliveries INT NOT NULL,
    hops INT NOT NULL,
    size BIGINT NOT NULL,
    locked_until BIGINT,
    token BLOB,
    reason TEXT,
    description TEXT,
    source BIGINT,
    origin BIGINT,
    body_file TEXT,
    content BIGINT NOT NULL
);
CREATE UNIQUE INDEX place ON message (entity, sub_queue, sequence);
CREATE INDEX next ON message (entity, sub_queue, stage, session_key, sequence);
CREATE UNIQUE INDEX token ON message (token) WHERE token IS NOT NULL;
CREATE INDEX lock ON message (locked_until) WHERE locked_until IS NOT NULL;
CREATE INDEX expiry ON message (expires) WHERE expires IS NOT NULL AND sub_queue = 0 AND stage < 3;
CREATE INDEX schedule ON message (scheduled, sequence) WHERE stage = 2;
CREATE INDEX leaving ON message (entity, sequence) WHERE stage = 4;
CREATE INDEX back ON message (entity, scheduled, sequence) WHERE stage = 6;

CREATE TABLE content (
    id INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL,
    session TEXT,
    partition_key TEXT,
    head BLOB NOT NULL,
    body BLOB
);

CREATE TABLE shared (content INTEGER PRIMARY KEY, copies BIGINT NOT NULL);

CREATE TABLE body_file (name TEXT PRIMARY KEY, copies BIGINT NOT NULL);
CREATE INDEX unused ON body_file (name) WHERE copies = 0;

CREATE TABLE session (
    entity BIGINT NOT NULL,
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    head BIGINT,
    token BLOB,
    locked_until BIGINT,
    state BLOB,
    updated BIGINT,
    PRIMARY KEY (entity, key)
);
CREATE INDEX free ON session (entity, head) WHERE head IS NOT NULL AND token IS NULL;
CREATE INDEX held ON session (locked_until) WHERE locked_until IS NOT NULL;

CREATE TABLE counter (
    entity INTEGER PRIMARY KEY,
    active BIGINT NOT NULL,
    dead_letter BIGINT NOT NULL,
    scheduled BIGINT NOT NULL,
    transfer BIGINT NOT NULL,
    transfer_dead_letter BIGINT NOT NULL,
    deferred BIGINT NOT NULL,
    size BIGINT NOT NULL,
    new BIGINT NOT NULL,
    duplicates BIGINT NOT NULL,
    dead_lettered BIGINT NOT NULL,
    unrouted BIGINT NOT NULL,
    discarded BIGINT NOT NULL,
    quarantined BIGINT NOT NULL,
    copies BIGINT NOT NULL,
    outgoing BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    abandoned BIGINT NOT NULL,
    expired BIGINT NOT NULL
);

CREATE TABLE highest (
    entity BIGINT NOT NULL,
    part BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    time BIGINT NOT NULL,
    PRIMARY KEY (entity, part)
);

CREATE TABLE dropped (
    entity BIGINT NOT NULL,
    number BIGINT NOT NULL,
    message_id TEXT NOT NULL,
    time BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    original_sequence BIGINT,
    original_time BIGINT,
    counted_by TEXT,
    counted_id TEXT,
    PRIMARY KEY (entity, number)
);
CREATE INDEX dropped_id ON dropped (entity, message_id, number);

CREATE TABLE forgotten (
    number INTEGER PRIMARY KEY,
    entity BIGINT NOT NULL,
    message_id TEXT NOT NULL,
    session TEXT,
    partition_key TEXT,
    time BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    original_sequence BIGINT,
    original_time BIGINT
);
CREATE INDEX forgotten_entity ON forgotten (entity, number);

CREATE TABLE quarantine (
    number INTEGER PRIMARY KEY,
    entity BIGINT NOT NULL,
    position BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    time BIGINT NOT NULL,
    message_id TEXT NOT NULL,
    session TEXT,
    partition_key TEXT,
    reason TEXT,
    description TEXT,
    size BIGINT NOT NULL,
    head BLOB NOT NULL,
    body BLOB,
    body_file TEXT
);
CREATE INDEX quarantine_entity ON quarantine (entity, number);

CREATE TABLE origin (
    entity BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    taken SMALLINT NOT NULL,
    settled BIGINT,
    body_file TEXT,
    PRIMARY KEY (entity, sequence)
);
CREATE INDEX settled ON origin (settled) WHERE settled IS NOT NULL;

CREATE TABLE pending (
    number INTEGER PRIMARY KEY,
    committed BIGINT NOT NULL,
    entity BIGINT NOT NULL,
    sequence BIGINT,
    is_checked SMALLINT NOT NULL,
    message_id TEXT NOT NULL,
    session TEXT,
    partition_key TEXT,
    scheduled BIGINT,
    ttl BIGINT,
    size BIGINT NOT NULL,
    head BLOB NOT NULL,
    body BLOB,
    body_file TEXT
);

CREATE TABLE sample (
    step INT NOT NULL,
    entity BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    new BIGINT NOT NULL,
    duplicates BIGINT NOT NULL,
    outgoing BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    dead_lettered BIGINT NOT NULL,
    before BIGINT NOT NULL,
    active BIGINT NOT NULL,
    PRIMARY KEY (step, entity, slot)
) WITHOUT ROWID;

CREATE TABLE running (began INTEGER PRIMARY KEY, ended BIGINT NOT NULL);

CREATE TABLE progress (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
"""
