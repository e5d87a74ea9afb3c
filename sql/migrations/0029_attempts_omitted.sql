-- How many attempts of a run are left out of `attempts`, which keeps the first and the last ones. NULL: none. No row is
-- rewritten, and the locks are brief.
ALTER TABLE runs ADD COLUMN attempts_omitted integer;
ALTER TABLE run_history ADD COLUMN attempts_omitted integer;
