-- List the recorded zones of one version among these.
SELECT name FROM zone_files WHERE version = %(version)s AND name = ANY (%(names)s::text[])
