-- The host's inbox: handled events, written in the same transaction as their effect.
CREATE TABLE IF NOT EXISTS scheduler_handled (
    event_id uuid NOT NULL,
    scope    text NOT NULL DEFAULT '',  -- distinguishes two effects of one event
    done_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_id, scope)
);

-- For deleting old events.
CREATE INDEX IF NOT EXISTS scheduler_handled_done ON scheduler_handled (done_at);
