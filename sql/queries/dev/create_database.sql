-- Create a database for a local stack from a template.
CREATE DATABASE {name} TEMPLATE {template}
