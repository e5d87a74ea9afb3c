-- Drop a database and its connections.
DROP DATABASE IF EXISTS {name} WITH (FORCE)
