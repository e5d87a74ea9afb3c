-- Add jobs that have only just been asked for: half of what an INSERT costs.
COPY jobs ({fresh}) FROM STDIN
