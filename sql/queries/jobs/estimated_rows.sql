-- The estimated number of jobs.
SELECT greatest(reltuples, 1)::bigint FROM pg_class WHERE oid = 'jobs'::regclass
