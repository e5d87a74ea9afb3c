-- How the runs of the last day ended, some thousands of them: how many succeeded, of how many, and how long they took.
SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded, count(*) AS ended,
       (extract(epoch FROM avg(finished_at - started_at)) * 1000)::float8 AS mean_ms
FROM (SELECT status, started_at, finished_at
      FROM run_history
      WHERE finished_at > now() - interval '1 day' AND status IN ('succeeded', 'dead') AND {theirs}
      LIMIT %(most)s) AS recent
