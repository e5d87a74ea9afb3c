-- One zone file.
SELECT data FROM zone_files WHERE version = %(version)s AND name = %(name)s
