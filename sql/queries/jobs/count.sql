-- Count the jobs that match, up to a bound beyond which the number itself is the message.
SELECT count(*) FROM (SELECT FROM ({found}) AS jobs LIMIT %(limit)s) AS found
