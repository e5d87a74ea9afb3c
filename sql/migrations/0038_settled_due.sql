-- The latest due time of the occurrences that were emitted or missed, if jitter delays one beyond later ones.
ALTER TABLE jobs ADD COLUMN settled_due timestamptz;
