-- Replicas: who serves this database now, by their own heartbeats. A row in time is a live process.

CREATE TABLE replicas (
    id           uuid PRIMARY KEY,
    role         text NOT NULL,
    host         text NOT NULL,
    pid          integer NOT NULL,
    version      text NOT NULL,
    metrics_port integer NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    recent       json NOT NULL DEFAULT '{}'  -- what it did in the last seconds, for `scheduler top`
)
-- A handful of rows, each rewritten every few seconds: the new version stays beside the old one.
WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Jobs whose event the broker refused: due, though their wake_at is in the future. Nearly always empty.
CREATE INDEX jobs_refused ON jobs (least(next_run_at, trigger_at))
    WHERE status = 'pending' AND retry_at IS NOT NULL;
