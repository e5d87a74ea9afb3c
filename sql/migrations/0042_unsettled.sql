-- Spans of nominal instants, as pairs of their ends: the occurrences inside them were not emitted or missed before the job
-- was planned again, although later ones were. NULL for nearly all jobs. No row is rewritten, and the lock is brief.
ALTER TABLE jobs ADD COLUMN unsettled timestamptz[];

-- Former contents of calendars, until all jobs that were planned with them are planned again.
CREATE TABLE former_calendars (
    name     text NOT NULL,
    revision bigint NOT NULL,
    content  json NOT NULL,
    PRIMARY KEY (name, revision)
);
