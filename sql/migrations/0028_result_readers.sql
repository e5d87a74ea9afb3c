-- Evidence that results were read: before a producer ends an attempt that reported nothing in time, it sends a marker
-- through scheduler_results and waits until every consumer has committed what was delivered before that marker.

CREATE TABLE result_readers (
    id           uuid PRIMARY KEY,               -- one for each time that a consumer starts to read the queue
    connected_at timestamptz NOT NULL,           -- since when its connection to the broker has lasted
    seen_at      timestamptz NOT NULL,           -- its last heartbeat
    silent_after float8 NOT NULL,                -- seconds without a heartbeat after which the broker has dropped it, too
    clean_at     timestamptz NOT NULL,           -- everything delivered to it before this instant is committed
    returned_at  timestamptz,                    -- when it last put results back into the queue
    gone         boolean NOT NULL DEFAULT false  -- it has stopped, or was silent for too long
)
-- A handful of rows, rewritten every few seconds: the new version stays beside the old one.
WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE result_markers (
    id        uuid PRIMARY KEY,
    reader_id uuid NOT NULL,
    read_at   timestamptz NOT NULL DEFAULT clock_timestamp()
)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE INDEX result_markers_read ON result_markers (read_at);

-- Consumers of release 0.2 do not record markers.
ALTER TABLE replicas ADD COLUMN reads_markers boolean NOT NULL DEFAULT false;
