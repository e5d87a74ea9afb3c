-- Make a database for a stack of our own, a copy of another.
CREATE DATABASE {name} TEMPLATE {template}
