"""The tables of the log, and the functions in the database that append to it."""

from __future__ import annotations

STALE = "the catalogue is stale"
CLOCK_WRONG = "the clock is wrong"
TOO_LATE = "the append comes too late"

MOST_AHEAD = 1_000_000
"""How far a stamp may be ahead of the database's clock, in microseconds."""
MOST_BEHIND = 60_000_000
"""How far it may be behind. It is older by as long as the append was on its way, on a busy machine for seconds."""

TABLES = f"""
CREATE TABLE head (
    last_commit BIGINT NOT NULL,
    position BIGINT NOT NULL,
    catalogue BIGINT NOT NULL,
    time BIGINT NOT NULL
);
INSERT INTO head VALUES (START, 0, 0, 0);

CREATE TABLE log_commit (
    number BIGINT PRIMARY KEY,
    catalogue BIGINT NOT NULL,
    position BIGINT NOT NULL,
    shift BIGINT NOT NULL,
    rows BIGINT NOT NULL,
    length BIGINT NOT NULL,
    entities BIGINT[] NOT NULL,
    parts BIGINT[] NOT NULL,
    bases BIGINT[] NOT NULL,
    frame BYTEA NOT NULL
);
ALTER TABLE log_commit ALTER COLUMN frame SET STORAGE EXTERNAL;

CREATE TABLE number (entity BIGINT NOT NULL, part BIGINT NOT NULL, last BIGINT NOT NULL, PRIMARY KEY (entity, part));

CREATE TABLE ticket (
    gateway TEXT PRIMARY KEY,
    turn BIGINT NOT NULL,
    number BIGINT,
    used TIMESTAMPTZ NOT NULL
);

CREATE TABLE catalogue (version BIGINT PRIMARY KEY, content BYTEA NOT NULL);

CREATE FUNCTION append_rows(
    by_gateway TEXT, by_turn BIGINT, checked BIGINT, first_time BIGINT, last_time BIGINT, row_count BIGINT,
    in_entities BIGINT[], in_parts BIGINT[], counts BIGINT[], bytes BYTEA, byte_count BIGINT,
    OUT at_commit BIGINT, OUT begins BIGINT, OUT moved BIGINT, OUT of_entities BIGINT[], OUT of_parts BIGINT[],
    OUT of_bases BIGINT[]
) LANGUAGE plpgsql AS $body$
DECLARE
    at head%ROWTYPE;
    clock BIGINT;
BEGIN
    -- Takes the row's lock: from here on all appends are in order.
    UPDATE head SET last_commit = last_commit + 1, position = position + row_count RETURNING * INTO at;
    IF at.catalogue <> checked THEN
        RAISE EXCEPTION '{STALE}: version % was checked, version % holds', checked, at.catalogue;
    END IF;
    moved := 0;
    IF first_time IS NOT NULL THEN
        clock := extract(epoch FROM clock_timestamp()) * 1000000;
        IF last_time - clock > {MOST_AHEAD} OR clock - last_time > {MOST_BEHIND} THEN
            RAISE EXCEPTION '{CLOCK_WRONG}: it differs from the database''s by % microseconds', last_time - clock;
        END IF;
        moved := greatest(at.time - first_time, 0);
        UPDATE head SET time = last_time + moved;
    END IF;
    INSERT INTO ticket AS t VALUES (by_gateway, by_turn, at.last_commit, clock_timestamp())
    ON CONFLICT (gateway) DO UPDATE SET turn = excluded.turn, number = excluded.number, used = excluded.used
    WHERE t.turn < excluded.turn;
    IF NOT FOUND THEN
        RAISE EXCEPTION '{TOO_LATE}: its gateway has given it up';
    END IF;
    WITH given AS (SELECT * FROM unnest(in_entities, in_parts, counts) AS g (entity, part, count)),
    taken AS (
        INSERT INTO number AS n SELECT entity, part, count FROM given
        ON CONFLICT (entity, part) DO UPDATE SET last = n.last + excluded.last
        RETURNING n.entity, n.part, n.last
    )
    SELECT coalesce(array_agg(entity), '{{}}'), coalesce(array_agg(part), '{{}}'),
        coalesce(array_agg(last - count), '{{}}')
    INTO of_entities, of_parts, of_bases FROM taken JOIN given USING (entity, part);
    at_commit := at.last_commit;
    begins := at.position - row_count;
    INSERT INTO log_commit
    VALUES (at_commit, checked, begins, moved, row_count, byte_count, of_entities, of_parts, of_bases, bytes);
    PERFORM pg_notify('oncebus', 'commit');
END $body$;

CREATE FUNCTION resolve_append(
    by_gateway TEXT, by_turn BIGINT,
    OUT at_commit BIGINT, OUT begins BIGINT, OUT moved BIGINT, OUT of_entities BIGINT[], OUT of_parts BIGINT[],
    OUT of_bases BIGINT[]
) LANGUAGE plpgsql AS $body$
DECLARE
    found_turn BIGINT;
BEGIN
    -- Waits for an append that is under way, and keeps others away until this is done.
    PERFORM 1 FROM head FOR UPDATE;
    SELECT turn, number INTO found_turn, at_commit FROM ticket WHERE gateway = by_gateway;
    IF found_turn IS DISTINCT FROM by_turn THEN
        at_commit := NULL;
        -- The append is not there, and will be refused should it still come.
        INSERT INTO ticket VALUES (by_gateway, by_turn, NULL, clock_timestamp())
        ON CONFLICT (gateway) DO UPDATE SET turn = excluded.turn, number = NULL, used = excluded.used;
    ELSE
        SELECT c.position, c.shift, c.entities, c.parts, c.bases INTO begins, moved, of_entities, of_parts, of_bases
        FROM log_commit c WHERE c.number = at_commit;
    END IF;
END $body$;
"""
