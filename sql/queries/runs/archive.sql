-- Move ended runs to the history after their end was published.
WITH ended AS (
    DELETE FROM runs WHERE event_id = ANY (%(ids)s::uuid[])
    RETURNING {kept}
)
INSERT INTO run_history ({kept})
SELECT {kept} FROM ended
