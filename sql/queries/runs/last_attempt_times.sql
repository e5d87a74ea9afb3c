-- Times of the attempt that ended a run, for its duration. Attempts with large outputs are omitted: reading them for
-- every row of a list costs too much.
CASE WHEN status IN ('succeeded', 'dead') AND pg_column_size(attempts) <= 4096 THEN coalesce((
    SELECT json_build_array(json_strip_nulls(json_build_object(
        'attempt', made -> 'attempt', 'outcome', made -> 'outcome', 'started_at', made -> 'started_at',
        'finished_at', made -> 'finished_at')))::text
    FROM json_array_elements(attempts) WITH ORDINALITY AS each (made, place)
    ORDER BY made ->> 'outcome' <> 'succeeded', CASE WHEN status = 'succeeded' THEN place ELSE -place END
    LIMIT 1), '[]') ELSE '[]' END AS attempts
