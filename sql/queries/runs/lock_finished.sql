-- Lock finished runs that a result or a retry is about; of two of the same event the newer.
SELECT {selected}
FROM run_history
WHERE event_id = ANY (%(ids)s::uuid[])
ORDER BY event_id, finished_at
FOR UPDATE
