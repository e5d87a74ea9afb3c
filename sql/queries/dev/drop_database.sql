-- Drop a database and whoever is connected to it.
DROP DATABASE IF EXISTS {name} WITH (FORCE)
