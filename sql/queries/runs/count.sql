-- Count the finished runs that match, up to a bound beyond which the number itself is the message.
SELECT count(*)
FROM (SELECT FROM run_history
      WHERE {wanted} AND (%(since)s IS NULL OR finished_at >= %(since)s::timestamptz - interval '1 day')
      LIMIT %(most)s) AS found
