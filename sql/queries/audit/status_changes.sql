-- The newest changes of a job's status before a time, among its newest entries.
SELECT at, who, via, action, status, reason
FROM (SELECT at, id, who, via, action, after ->> 'status' AS status, reason
      FROM audit
      WHERE thing = %(job)s AND kind = 'job' AND tenant = %(tenant)s AND at < %(until)s
      ORDER BY at DESC, id DESC
      LIMIT 1000) AS newest
WHERE status IS NOT NULL
ORDER BY at DESC, id DESC
LIMIT 100
