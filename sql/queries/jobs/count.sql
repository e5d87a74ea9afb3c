-- Count matching jobs up to a limit.
SELECT count(*) FROM (SELECT FROM ({found}) AS jobs LIMIT %(limit)s) AS found
