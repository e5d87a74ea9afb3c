-- Count open runs by status, up to a limit.
SELECT status::text, count(*)
FROM (SELECT status FROM runs WHERE {theirs} LIMIT %(most)s) AS few
GROUP BY status
