-- Add messages, in the order in which they came.
COPY delayed_messages ({columns}) FROM STDIN (FORMAT binary)
