-- Count a job's newest runs since a point in time, by status and by due date in the job's time zone.
SELECT (due_at AT TIME ZONE %(timezone)s)::date AS day, status::text, count(*)
FROM ((SELECT due_at, status
       FROM run_history
       WHERE job_id = %(job_id)s::uuid AND due_at >= %(since)s
         AND finished_at >= %(since)s - interval '1 day'
       ORDER BY due_at DESC LIMIT %(most)s)
      UNION ALL
      (SELECT due_at, status FROM runs WHERE job_id = %(job_id)s::uuid AND due_at >= %(since)s LIMIT %(most)s)) AS found
GROUP BY 1, 2
