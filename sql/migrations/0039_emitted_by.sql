-- The producer that published the event of the newest attempt: its id in `replicas`.
ALTER TABLE runs ADD COLUMN emitted_by text;
ALTER TABLE run_history ADD COLUMN emitted_by text;
