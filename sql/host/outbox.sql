-- The host's outbox: commands written in the host's own transactions, relayed by `scheduler outbox`. A command
-- exists if and only if its transaction committed. From any language it is one statement:
--   INSERT INTO scheduler_outbox (kind, body) VALUES ('cancel', '{"id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"}');
CREATE TABLE IF NOT EXISTS scheduler_outbox (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind           text NOT NULL,
    body           json NOT NULL CHECK (json_typeof(body) = 'object'),
    correlation_id text,
    headers        json CHECK (json_typeof(headers) = 'object'),

    -- One clock for every process of the host: the latest command for a job wins. An issued_at in
    -- the body takes precedence.
    issued_at      timestamptz NOT NULL DEFAULT clock_timestamp(),

    -- Retry state while the broker rejects the command.
    try_at         timestamptz NOT NULL DEFAULT now(),
    attempts       integer NOT NULL DEFAULT 0,
    last_error     text
);

-- Separate from CREATE TABLE, so that existing tables accept new kinds.
ALTER TABLE scheduler_outbox
    DROP CONSTRAINT IF EXISTS scheduler_outbox_kind_check,
    ADD CONSTRAINT scheduler_outbox_kind_check
        CHECK (kind IN ('request', 'pause', 'resume', 'trigger', 'cancel', 'retry', 'calendar'));
