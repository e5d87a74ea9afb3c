-- Count matching finished runs up to a limit.
SELECT count(*)
FROM (SELECT FROM run_history
      WHERE {wanted} AND (%(since)s IS NULL OR finished_at >= %(since)s::timestamptz - interval '1 day')
      LIMIT %(most)s) AS found
