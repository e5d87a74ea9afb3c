-- A replica identity for the history, whose partitions have no primary key: without one, a publication for all tables (Debezium, a
-- logical upgrade) makes each replay of a run fail. FULL, because an event_id may be in a partition twice. It only matters, and only
-- writes more WAL, while wal_level is logical. The locks are brief.
ALTER TABLE run_history REPLICA IDENTITY FULL;

DO $$
DECLARE
    partition regclass;
BEGIN
    FOR partition IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'run_history'::regclass LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', partition);
    END LOOP;
END
$$;

-- As in migration 0026; a partition is not created with the identity of its parent.
CREATE OR REPLACE FUNCTION add_run_partition(days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    missing date[];
    partition text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1548667951) THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(day ORDER BY day)
    INTO missing
    FROM (SELECT generate_series(today, today + least(days, 60), interval '1 day')::date AS day) AS wanted
    WHERE to_regclass('run_history_' || to_char(day, 'YYYYMMDD')) IS NULL
      AND NOT EXISTS (SELECT FROM run_history_default
                      WHERE finished_at >= day::timestamp AT TIME ZONE 'UTC'
                        AND finished_at < (day + 1)::timestamp AT TIME ZONE 'UTC');
    IF missing IS NULL THEN
        RETURN 0;
    END IF;
    partition := 'run_history_' || to_char(missing[1], 'YYYYMMDD');
    EXECUTE format('CREATE TABLE %I (LIKE run_history INCLUDING ALL)', partition);
    EXECUTE format('ALTER TABLE %I REPLICA IDENTITY FULL', partition);
    EXECUTE format('ALTER TABLE run_history ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition,
                   missing[1]::timestamp AT TIME ZONE 'UTC', (missing[1] + 1)::timestamp AT TIME ZONE 'UTC');
    RETURN cardinality(missing);
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RETURN NULL;
END
$$;
