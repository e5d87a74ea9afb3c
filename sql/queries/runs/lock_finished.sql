-- Lock the finished runs of results and retries; for two runs with the same event, the newer.
SELECT {selected}
FROM run_history
WHERE event_id = ANY (%(ids)s::uuid[])
ORDER BY event_id, finished_at
FOR UPDATE
