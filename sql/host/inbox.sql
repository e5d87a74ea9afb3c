-- The host's inbox: which events have taken effect. Written in the same transaction as the effect itself.
CREATE TABLE IF NOT EXISTS scheduler_handled (
    event_id uuid NOT NULL,
    scope    text NOT NULL DEFAULT '',  -- tells two effects of one event apart
    done_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_id, scope)
);

-- Forgetting old events walks this one.
CREATE INDEX IF NOT EXISTS scheduler_handled_done ON scheduler_handled (done_at);
