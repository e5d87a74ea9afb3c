-- Whether an index is there, and whole: one whose making was cut short is there but invalid.
SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%(index)s)
