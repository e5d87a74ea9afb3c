-- Let jobs go on that wait for one of these runs. Locked first: a producer that holds one may be about to have it wait.
WITH held AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY (%(ids)s::uuid[]) ORDER BY id FOR UPDATE
)
UPDATE jobs SET retry_at = NULL, held_by = NULL
FROM held
WHERE jobs.id = held.id AND held_by = ANY (%(event_ids)s::uuid[])
RETURNING jobs.wake_at
