-- The version of the zone data that a job's next run was planned with. NULL: the job does not follow a wall clock, or an
-- earlier release planned it. "C", because versions are compared as text. No row is rewritten, and the lock is brief.
ALTER TABLE jobs ADD COLUMN zone_version text COLLATE "C";

-- The compiled zone files that jobs were planned with, so that a newer version can tell which wall times their instants
-- were. Whoever stores a job adds its zone's file if it is missing.
CREATE TABLE zone_files (
    version text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    data    bytea NOT NULL,
    PRIMARY KEY (version, name)
);
