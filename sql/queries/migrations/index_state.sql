-- Return whether an index is valid; an interrupted build leaves an invalid one.
SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%(index)s)
