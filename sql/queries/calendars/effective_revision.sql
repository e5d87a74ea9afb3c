-- The revision of the calendar that applies to jobs that use a changed one: if it was deleted, that of all tenants.
CASE WHEN changed.content IS NOT NULL THEN changed.revision
     ELSE (SELECT shared.revision FROM calendars AS shared
           WHERE shared.name = changed.name AND shared.tenant = '*' AND shared.content IS NOT NULL) END
