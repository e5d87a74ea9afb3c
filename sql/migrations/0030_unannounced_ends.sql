-- Ends of a run that were not announced before a retry or a late success.
ALTER TABLE runs ADD COLUMN unannounced json;
