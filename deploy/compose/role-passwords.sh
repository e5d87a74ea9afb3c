#!/bin/sh
# Sets the passwords of the roles that sql/roles/roles.sql creates. The postgres image runs it once, for an empty volume.
set -eu
psql --set=ON_ERROR_STOP=1 --quiet --username="${POSTGRES_USER:-postgres}" --dbname="${POSTGRES_DB:-scheduler}" \
    --set=owner="$OWNER_PASSWORD" --set=runtime="$RUNTIME_PASSWORD" <<'SQL'
ALTER ROLE scheduler_owner PASSWORD :'owner';
ALTER ROLE scheduler_runtime PASSWORD :'runtime';
SQL
