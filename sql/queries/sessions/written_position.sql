-- Return the end of the write-ahead log; null on a server that is not a primary.
SELECT CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_insert_lsn() - '0/0')::bigint END
