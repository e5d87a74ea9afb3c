-- Insert newly requested jobs; costs half of an INSERT.
COPY jobs ({fresh}) FROM STDIN
