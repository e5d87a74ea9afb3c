-- The callers of triggers, by job and due time.
SELECT thing, after ->> 'due_at', via, who
FROM audit
WHERE action = 'trigger' AND thing = ANY (%(jobs)s) AND after ->> 'due_at' = ANY (%(due)s)
ORDER BY at DESC
