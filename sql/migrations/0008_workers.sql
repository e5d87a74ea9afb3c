-- Workers: who does the work of jobs with a target, by what each says of itself over AMQP. They need no database; the
-- consumer that hears them writes these rows.

CREATE TABLE workers (
    id           uuid PRIMARY KEY,
    host         text NOT NULL,
    pid          bigint NOT NULL,
    version      text NOT NULL,
    started_at   timestamptz NOT NULL,  -- by the worker's clock
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    offers       text[] NOT NULL,
    in_flight    bigint NOT NULL,
    busy         json NOT NULL,         -- what it has been busy with for longest
    succeeded    bigint NOT NULL,
    failed       bigint NOT NULL,
    snoozed      bigint NOT NULL,
    beat         bigint NOT NULL        -- counts what it said; an older one that comes late changes nothing
)
-- As `replicas`: a handful of rows, each rewritten every few seconds.
WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
