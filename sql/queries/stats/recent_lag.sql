-- How late the newest jobs went out that have run for the last time.
SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY lag)
FROM (SELECT extract(epoch FROM last_confirmed_at - last_due_at)::float8 * 1000 AS lag
      FROM jobs
      WHERE finished_at IS NOT NULL AND last_confirmed_at IS NOT NULL AND {theirs}
      ORDER BY finished_at DESC
      LIMIT %(most)s) AS newest
