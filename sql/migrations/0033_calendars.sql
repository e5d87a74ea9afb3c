-- Business calendars. A deleted calendar keeps its row without content, so that an older command does not restore it.
CREATE TABLE calendars (
    name        text NOT NULL,
    tenant      text NOT NULL,  -- the owner; * for all tenants
    content     json,           -- weekend, closed, open, valid_until; NULL: deleted
    valid_until date,
    version     integer NOT NULL,
    revision    bigint NOT NULL,       -- different for each state of the calendars with one name
    issued_at   timestamptz NOT NULL,  -- of the newest command
    changed     boolean NOT NULL DEFAULT true,  -- the jobs that use it are not yet planned again
    updated_at  timestamptz NOT NULL DEFAULT now(),
    updated_by  text,
    PRIMARY KEY (name, tenant)
);

CREATE INDEX calendars_changed ON calendars (name, tenant) WHERE changed;

-- All columns are NULL for a job without a calendar, a window and jitter. No row is rewritten, and the lock is brief.
ALTER TABLE jobs
    ADD COLUMN calendar          text,
    ADD COLUMN on_closed         text,
    ADD COLUMN sending_window    text,         -- such as 09:00-18:00,MO,TU
    ADD COLUMN jitter            interval,
    ADD COLUMN nominal_at        timestamptz,  -- the nominal instant of next_run_at; NULL if it was not moved
    ADD COLUMN settled_until     timestamptz,  -- the latest nominal instant that was emitted or missed
    ADD COLUMN reported_until    timestamptz,  -- the latest nominal instant that was skipped and reported
    ADD COLUMN skip_at           timestamptz,  -- when to report the next skipped occurrences
    ADD COLUMN calendar_revision bigint;       -- the calendar that next_run_at was computed with
