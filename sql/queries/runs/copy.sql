-- Record runs whose event goes out for the first time.
COPY runs ({columns}) FROM STDIN
