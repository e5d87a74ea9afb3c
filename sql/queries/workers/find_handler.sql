-- Return what the newest live worker announces about a job type.
SELECT offer
FROM workers, json_array_elements(handlers) AS offer
WHERE handlers IS NOT NULL AND last_seen_at > now() - %(stale_after)s * interval '1 second'
  AND offer ->> 'job_type' = %(job_type)s
ORDER BY started_at DESC, id DESC
LIMIT 1
