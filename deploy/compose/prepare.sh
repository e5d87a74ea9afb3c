#!/bin/sh
# Makes what docker-compose.yml needs and git must not have: .env with passwords, and secrets/ with the API's key and
# the webhooks' secrets. What is there already is left as it is: running it again is harmless.
# usage: sh deploy/compose/prepare.sh [DIRECTORY, by default the one of docker-compose.yml]
set -eu
cd "${1:-$(dirname "$0")/../..}"

random() { # so many bytes as hexadecimal digits, which need no encoding in a URL
    od -An -N "$1" -tx1 /dev/urandom | tr -d ' \n'
}

umask 077
if [ ! -e .env ]; then
    for name in POSTGRES_PASSWORD RABBITMQ_PASSWORD GRAFANA_PASSWORD; do
        printf '%s=%s\n' "$name" "$(random 24)"
    done > .env.new
    mv .env.new .env
    echo "wrote .env"
fi
mkdir -p secrets
if [ ! -e secrets/jwt_key ]; then
    random 32 > secrets/jwt_key
    echo "wrote secrets/jwt_key"
fi
if [ ! -e secrets/webhooks.toml ]; then
    printf '# name = "whsec_…", or [new, old] while it is rotated\nexample = "whsec_%s"\n' \
        "$(dd if=/dev/urandom bs=24 count=1 2>/dev/null | base64 | tr -d '\n')" > secrets/webhooks.toml
    echo "wrote secrets/webhooks.toml"
fi
# The processes run as 10001 in their containers and read the files there; others on this machine are kept out by the
# folder, which belongs to you alone.
chmod 700 secrets
chmod 444 secrets/jwt_key secrets/webhooks.toml
