-- Lock the rows of a batch of commands in id order, so that two consumers never deadlock.
SELECT {selected}
FROM jobs
WHERE id = ANY (%(ids)s::uuid[])
ORDER BY id
FOR UPDATE
