-- Insert messages in order of arrival.
COPY delayed_messages ({columns}) FROM STDIN (FORMAT binary)
