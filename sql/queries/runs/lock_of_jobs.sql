-- Lock the open runs of some jobs.
SELECT {selected}
FROM runs
WHERE job_id = ANY (%(ids)s::uuid[])
ORDER BY event_id
FOR UPDATE
