-- Show the jobs that live pages show: those that somebody looks at, and the newest of all for what is new in open lists.
SELECT {selected}, {beside}
FROM jobs
WHERE job_type IS NOT NULL
  AND id = ANY(%(ids)s::uuid[] || ARRAY(SELECT id FROM ({newest}) AS newest))
