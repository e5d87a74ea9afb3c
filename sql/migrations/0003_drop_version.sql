-- Row locks guard the jobs that are there, and the primary key those that two consumers create at once.
ALTER TABLE jobs DROP COLUMN version;
