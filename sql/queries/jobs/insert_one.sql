-- Insert one newly requested job; a COPY of one row takes twice as long.
INSERT INTO jobs ({fresh}) VALUES ({values})
