-- Lock the open runs of a batch of results in id order, so that two consumers never deadlock.
SELECT {selected}
FROM runs
WHERE event_id = ANY (%(ids)s::uuid[])
ORDER BY event_id
FOR UPDATE
