-- Move runs that have ended, and of which that was told, to the history.
WITH ended AS (
    DELETE FROM runs WHERE event_id = ANY (%(ids)s::uuid[])
    RETURNING {kept}
)
INSERT INTO run_history ({kept})
SELECT {kept} FROM ended
