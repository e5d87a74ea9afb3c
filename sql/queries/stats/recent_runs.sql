-- How the runs of the last day ended, the newest some thousands of them: how many succeeded, of how many; and how long the
-- attempts took that ended the newest few hundred, by their workers' clocks, as each run says it (Run.duration).
SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded, count(*) AS ended, CASE WHEN count(*) > 0 THEN (
    SELECT avg(greatest(0, extract(epoch FROM (attempt ->> 'finished_at')::timestamptz
                                              - (attempt ->> 'started_at')::timestamptz)) * 1000)
           FILTER (WHERE attempt ->> 'started_at' IS NOT NULL)::float8
    FROM (SELECT CASE status
                 WHEN 'succeeded' THEN (
                     SELECT attempt FROM json_array_elements(attempts) WITH ORDINALITY AS made (attempt, place)
                     WHERE attempt ->> 'outcome' = 'succeeded' ORDER BY place LIMIT 1)
                 ELSE attempts -> -1 END AS attempt
          FROM run_history
          WHERE finished_at > now() - interval '1 day' AND status IN ('succeeded', 'dead') AND {theirs}
          ORDER BY due_at DESC, event_id DESC
          LIMIT %(few)s) AS newest
    ) END AS mean_ms
FROM (SELECT status
      FROM run_history
      WHERE finished_at > now() - interval '1 day' AND status IN ('succeeded', 'dead') AND {theirs}
      ORDER BY due_at DESC, event_id DESC
      LIMIT %(most)s) AS recent
