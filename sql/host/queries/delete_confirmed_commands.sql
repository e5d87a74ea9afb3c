-- Delete confirmed commands.
DELETE FROM scheduler_outbox
WHERE id = ANY (%s::bigint[])
