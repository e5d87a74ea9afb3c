-- Which of these zones of one version are recorded.
SELECT name FROM zone_files WHERE version = %(version)s AND name = ANY (%(names)s::text[])
