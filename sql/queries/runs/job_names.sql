-- The names of the jobs of these runs.
SELECT found.event_id::text, jobs.name
FROM (SELECT event_id, job_id FROM runs WHERE event_id = ANY(%(ids)s::uuid[])
      UNION
      SELECT event_id, job_id FROM run_history WHERE event_id = ANY(%(ids)s::uuid[])) AS found
JOIN jobs ON jobs.id = found.job_id
WHERE jobs.name IS NOT NULL
