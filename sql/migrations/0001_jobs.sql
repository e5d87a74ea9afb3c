-- Jobs: one row for each id a host has ever named, and what is known of it.

CREATE TYPE job_status AS ENUM (
    'pending',    -- will emit when wake_at comes
    'paused',     -- defined, emits nothing until resumed
    'awaiting',   -- a pause, resume or trigger came before its request: nothing to run yet
    'done',       -- every occurrence was emitted or passed over
    'cancelled'   -- a cancel is newer than the newest request
);

CREATE TYPE missed_policy AS ENUM ('latest', 'all', 'skip');

CREATE TABLE jobs (
    id             uuid PRIMARY KEY,
    status         job_status NOT NULL DEFAULT 'pending',

    -- What the host asked for. `json`, not `jsonb`: the payload is handed back byte for byte.
    job_type       text CHECK (char_length(job_type) BETWEEN 1 AND 200),
    payload        json NOT NULL DEFAULT '{}',
    correlation_id text,
    traceparent    text,
    tracestate     text,

    -- When it runs. Without rrule, cron and every it runs once, at starts_at.
    rrule          text,
    cron           text,
    every          interval,
    timezone       text NOT NULL DEFAULT 'UTC',
    dtstart        timestamp,    -- wall clock in `timezone`: a DTSTART inside a clock change survives
    starts_at      timestamptz,  -- nothing runs before it
    ends_at        timestamptz,  -- the rule's COUNT as an instant, reckoned once
    on_missed      missed_policy NOT NULL DEFAULT 'latest',
    max_lateness   interval,

    -- Where it stands.
    next_run_at    timestamptz,  -- the next occurrence, and the due_at of its event
    occurrence     bigint NOT NULL DEFAULT 0,
    retries        integer NOT NULL DEFAULT 0,
    retry_at       timestamptz,  -- set while the broker refuses the event
    triggers       timestamptz[] NOT NULL DEFAULT '{}',  -- issued_at of each that waits to be emitted, oldest first
    trigger_at     timestamptz,  -- when the oldest of them was stored
    triggered_at   timestamptz,  -- issued_at of the newest that was emitted

    -- The newest command of each kind, by the host's issued_at: what decides, whatever the order of arrival.
    requested_at   timestamptz DEFAULT now(),
    cancelled_at   timestamptz,
    paused_at      timestamptz,
    resumed_at     timestamptz,

    version        integer NOT NULL DEFAULT 1,  -- grows with every stored command; guards concurrent consumers
    created_at     timestamptz NOT NULL DEFAULT now(),
    finished_at    timestamptz,

    -- The instant a producer looks at: a refused event waits for its retry, a trigger may come first.
    wake_at        timestamptz GENERATED ALWAYS AS (coalesce(retry_at, least(next_run_at, trigger_at))) STORED,

    CHECK (num_nonnulls(rrule, cron, every) <= 1)
)
WITH (
    -- Every emission rewrites its row. Room on the page keeps the new version beside the old one, and
    -- pruned versions make room for the next.
    fillfactor = 80,
    -- A queue churns a small hot part of a large table: waiting for 20 % dead rows would wait for ever
    -- with 10 million pending, so vacuum after a fixed amount of work, and without long naps.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- The claim walks this index from its low end; finished and paused rows are not in it.
CREATE INDEX jobs_due ON jobs (wake_at) WHERE status = 'pending';

-- Pruning walks this one.
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
