#!/bin/sh
# Creates files that docker-compose.yml needs and git must not contain: .env with passwords, secrets/ with the API's key,
# the webhook secrets and the broker users. Existing values stay: run it again after an upgrade.
# usage: sh deploy/compose/prepare.sh [DIRECTORY, by default the one that contains docker-compose.yml]
set -eu
roles=$(cd "$(dirname "$0")/../.." && pwd)/sql/roles/rabbitmq.sh
cd "${1:-$(dirname "$0")/../..}"

random() { # N bytes as hexadecimal digits, which need no encoding in a URL
    od -An -N "$1" -tx1 /dev/urandom | tr -d ' \n'
}

umask 077
touch .env
for name in POSTGRES_PASSWORD OWNER_PASSWORD RUNTIME_PASSWORD RABBITMQ_PASSWORD SIDECAR_PASSWORD HOST_PASSWORD \
    WORKER_PASSWORD COMMAND_WORKER_PASSWORD API_PASSWORD GRAFANA_PASSWORD; do
    grep -q "^$name=." .env || {
        printf '%s=%s\n' "$name" "$(random 24)" >> .env
        echo "wrote $name to .env"
    }
done
mkdir -p secrets
if [ ! -e secrets/jwt_key ]; then
    random 32 > secrets/jwt_key
    echo "wrote secrets/jwt_key"
fi
if [ ! -e secrets/alert_url ]; then
    # Nothing listens there: alerts are shown by Prometheus and Alertmanager only.
    printf 'http://127.0.0.1:9/' > secrets/alert_url
    echo "wrote secrets/alert_url: replace it with the URL that gets alerts"
fi
if [ ! -e secrets/webhooks.toml ]; then
    printf '# name = "whsec_…", or [new, old] during rotation: docs/webhooks.md\nexample = "whsec_%s"\n' \
        "$(dd if=/dev/urandom bs=24 count=1 2>/dev/null | base64 | tr -d '\n')" > secrets/webhooks.toml
    echo "wrote secrets/webhooks.toml"
fi
if [ ! -e secrets/rabbitmq.json ]; then
    # In a subshell: the passwords do not stay in this shell's environment.
    (
        set -a
        . ./.env
        ADMIN_PASSWORD=$RABBITMQ_PASSWORD sh "$roles" --definitions > secrets/rabbitmq.json
    )
    echo "wrote secrets/rabbitmq.json"
fi
# The processes run as user 10001 in their containers and read these files. The folder's mode keeps other users out.
chmod 700 secrets
chmod 444 secrets/jwt_key secrets/webhooks.toml secrets/rabbitmq.json
