-- ANALYZE's estimate of the number of jobs.
SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'jobs'::regclass
