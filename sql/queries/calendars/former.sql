-- The contents of the calendars with these names and revisions, also former ones.
SELECT name, revision, content::text
FROM unnest(%(names)s::text[], %(revisions)s::bigint[]) AS wanted (name, revision)
JOIN (SELECT name, revision, content FROM former_calendars
      UNION ALL SELECT name, revision, content FROM calendars WHERE content IS NOT NULL) AS stored
     USING (name, revision)
