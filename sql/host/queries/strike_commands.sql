-- Remove the commands that the broker has confirmed.
DELETE FROM scheduler_outbox
WHERE id = ANY (%s::bigint[])
