-- What SCHEDULER_NOTIFY_WEBHOOK was told: one row for each problem, until it is over. It holds ids and no content.
CREATE TABLE notifications (
    key        text PRIMARY KEY,        -- kind and subject
    kind       text NOT NULL,
    subject    text NOT NULL,           -- the id of a job, the name of a worker or a calendar
    tenant     text,
    event_id   uuid,                    -- of a dead run
    firing     boolean NOT NULL,        -- false: the problem is over
    since      timestamptz NOT NULL,    -- from when the problem exists, or is over
    sent       boolean NOT NULL DEFAULT false,
    changed_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX notifications_unsent ON notifications (changed_at) WHERE NOT sent;
