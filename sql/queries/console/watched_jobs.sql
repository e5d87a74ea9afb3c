-- Return the jobs on live pages: those being viewed, and the newest for open lists.
SELECT {selected}, {beside}
FROM jobs
WHERE job_type IS NOT NULL
  AND id = ANY(%(ids)s::uuid[] || ARRAY(SELECT id FROM ({newest}) AS newest))
