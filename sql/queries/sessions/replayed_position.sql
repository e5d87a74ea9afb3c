-- Return whether this server is a standby, and the position of the last replayed record of the write-ahead log.
SELECT pg_is_in_recovery(), (pg_last_wal_replay_lsn() - '0/0')::bigint
