-- Insert runs whose event is emitted for the first time.
COPY runs ({columns}) FROM STDIN
