-- Where the start of a recurring schedule comes from: 'run_at' (the request gave it) or 'stored' (when the request was
-- stored). NULL: a one-shot, or a row that release 0.2 wrote. No row is rewritten, and the lock is brief.
ALTER TABLE jobs ADD COLUMN start_source text;
