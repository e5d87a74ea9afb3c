-- Runs: what became of each occurrence of a tracked job. Open ones are few and hot; finished ones go to a history
-- whose partitions are dropped when they are old.

CREATE TYPE run_status AS ENUM (
    'expected',   -- results came before the producer's own record of the event
    'delivered',  -- an attempt is out, nobody has begun it
    'running',
    'waiting',    -- for its next attempt
    'emitted',    -- of a job that is not tracked: a record, nothing more
    'succeeded',
    'dead',       -- given up after its last attempt
    'cancelled'
);

CREATE TYPE run_origin AS ENUM ('schedule', 'trigger');

ALTER TABLE jobs
    ADD COLUMN run     json,  -- the policy of a tracked job
    ADD COLUMN held_by uuid;  -- the open run that this job waits for (overlap: wait)

CREATE TABLE runs (
    event_id       uuid PRIMARY KEY,
    status         run_status NOT NULL,

    -- What it is about: the same for all its attempts.
    job_id         uuid,
    job_type       text,
    due_at         timestamptz,
    origin         run_origin,
    policy         json,
    event          json,  -- the ScheduleDue without what differs from attempt to attempt
    correlation_id text,
    traceparent    text,
    tracestate     text,

    -- The current attempt, and what is known of it.
    attempt        integer NOT NULL DEFAULT 0,  -- deliveries so far; `retries` of a job counts refused publishes
    counted        integer NOT NULL DEFAULT 0,  -- those that count, since the request or the last retry
    emitted_at     timestamptz,
    deadline       timestamptz,
    alive_until    timestamptz,  -- a sign of life must come by then, where the worker has promised one
    retry_at       timestamptz,
    started_at     timestamptz,
    finished_at    timestamptz,
    worker         text,
    progress       float8,
    error          text,
    output         json,
    output_cut     boolean NOT NULL DEFAULT false,
    attempts       json NOT NULL DEFAULT '[]',  -- those that have come to an end, oldest first
    decided_by     text,         -- what decided the current attempt
    retried_at     timestamptz,  -- issued_at of the newest retry
    early          json NOT NULL DEFAULT '[]',  -- results that came before the event was known
    noted_at       timestamptz,  -- when the first of them came

    wake_at        timestamptz   -- when a producer looks at it: to try again, to give up waiting, to tell how it ended
)
WITH (
    -- Each row is rewritten a few times and then moved away: as in `jobs`, vacuum after a fixed amount of work.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX runs_due ON runs (wake_at);
CREATE INDEX runs_of_job ON runs (job_id);

-- The same columns; when a run is replayed or succeeds late its row moves back.
CREATE TABLE run_history (LIKE runs INCLUDING DEFAULTS) PARTITION BY RANGE (finished_at);
ALTER TABLE run_history DROP COLUMN wake_at, DROP COLUMN early, DROP COLUMN noted_at;

CREATE INDEX run_history_event ON run_history (event_id);
CREATE INDEX run_history_job ON run_history (job_id, due_at DESC);
CREATE INDEX run_history_dead ON run_history (finished_at) WHERE status = 'dead';

-- Where no partition was made in time: nothing is lost, and old rows are deleted one by one.
CREATE TABLE run_history_default PARTITION OF run_history DEFAULT;

-- Make a partition for each day from today on, unless it is there. The runtime role may not create tables: this does
-- it for that role, by the owner's right and with nothing to choose but how many days.
CREATE FUNCTION make_run_partitions(days integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    day date;
    partition text;
BEGIN
    PERFORM pg_advisory_xact_lock(1548667951);
    FOR day IN SELECT generate_series((now() AT TIME ZONE 'UTC')::date,
                                      (now() AT TIME ZONE 'UTC')::date + least(days, 60), interval '1 day')::date
    LOOP
        partition := 'run_history_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(partition) IS NOT NULL;
        CONTINUE WHEN EXISTS (SELECT FROM run_history_default
                              WHERE finished_at >= day::timestamp AT TIME ZONE 'UTC'
                                AND finished_at < (day + 1)::timestamp AT TIME ZONE 'UTC');
        EXECUTE format('CREATE TABLE %I PARTITION OF run_history FOR VALUES FROM (%L) TO (%L)', partition,
                       day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    END LOOP;
END
$$;

-- Drop the partitions of days that ended so many days ago; say how many were dropped.
CREATE FUNCTION drop_run_partitions(retention_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    partition text;
    dropped integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(1548667951);
    FOR partition IN
        SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
        WHERE inhparent = 'run_history'::regclass AND relname ~ '^run_history_\d{8}$'
          AND to_date(right(relname, 8), 'YYYYMMDD') + 1
              <= ((now() - make_interval(days => greatest(retention_days, 0))) AT TIME ZONE 'UTC')::date
          AND to_date(right(relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date
    LOOP
        EXECUTE format('DROP TABLE %I', partition);
        dropped := dropped + 1;
    END LOOP;
    DELETE FROM run_history_default
    WHERE finished_at < now() - make_interval(days => greatest(retention_days, 0));
    RETURN dropped;
END
$$;

SELECT make_run_partitions(14);
