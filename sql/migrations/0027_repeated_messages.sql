-- The message_id of each trigger that came without issued_at, so that a redelivery of it emits nothing again.
CREATE TABLE trigger_messages (
    job_id    uuid NOT NULL,
    message   uuid NOT NULL,  -- a digest of the message_id, which may be any text
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, message)
);

CREATE INDEX trigger_messages_stored ON trigger_messages (stored_at);

-- How often a message of a classic queue was redelivered: such a queue doesn't count that itself.
CREATE TABLE redeliveries (
    message    uuid PRIMARY KEY,  -- a digest of the whole message
    count      integer NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT now()
);
