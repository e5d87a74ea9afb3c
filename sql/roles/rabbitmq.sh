#!/bin/sh
# Users for RabbitMQ: the sidecar's, the host's and the workers', each with what it needs and no more.
# usage: VHOST=/ SIDECAR_PASSWORD=… HOST_PASSWORD=… [WORKER_PASSWORD=… API_PASSWORD=…] \
#        sh sql/roles/rabbitmq.sh [rabbitmqctl …]
# Without a WORKER_PASSWORD there is no user for workers, and without an API_PASSWORD none for the API.
# What is given as arguments is the command to run instead of rabbitmqctl, for example
# `docker compose exec -T rabbitmq rabbitmqctl`.
set -eu
vhost=${VHOST:-/}
[ $# -gt 0 ] || set -- rabbitmqctl

user() { # name, password, configure, write, read; the password goes through standard input, not the process list
    name=$1 password=$2 configure=$3 write=$4 read=$5
    shift 5
    printf '%s' "$password" | "$@" --quiet add_user "$name" 2>/dev/null ||
        printf '%s' "$password" | "$@" --quiet change_password "$name"
    "$@" --quiet set_permissions -p "$vhost" "$name" "$configure" "$write" "$read"
}

# The sidecar declares the topology, consumes its inbox, the results and delayed messages, publishes events, dead letters,
# replies and what was delayed. For further pairs (SCHEDULER_DELAY_EXCHANGES=NAME:TYPE) add NAME, NAME\.delay and
# scheduler_delay_NAME wherever schedule\.delayed, schedule\.delay and scheduler_delay stand.
user scheduler_sidecar "$SIDECAR_PASSWORD" \
    '^(schedule\.(commands|events|dead|work|delay|delayed)|scheduler_(inbox|results|dead|webhooks|delay)|mainapp_due)$' \
    '^(schedule\.(events|dead|work|delayed)|scheduler_(inbox|results|dead|webhooks|delay)|mainapp_due|amq\.default)$' \
    '^(schedule\.(commands|events|dead|work|delay)|scheduler_(inbox|results|delay))$' "$@"

# A worker declares the topology too, takes work, and publishes results; it cannot read commands or forge events.
[ -z "${WORKER_PASSWORD:-}" ] || user scheduler_worker "$WORKER_PASSWORD" \
    '^(schedule\.(commands|events|dead|work|delay|delayed)|scheduler_(inbox|results|dead|webhooks|delay|command_.*|answers_.*)|mainapp_due)$' \
    '^(schedule\.(commands|delayed)|scheduler_(inbox|results|dead|webhooks|delay|command_.*)|mainapp_due)$' \
    '^(schedule\.(commands|events|dead|work|delay)|scheduler_(webhooks|command_.*|answers_.*))$' "$@"

# The API looks into the dead letters, and sends them again to where they came from; it needs nothing else of the broker.
[ -z "${API_PASSWORD:-}" ] || user scheduler_api "$API_PASSWORD" \
    '^$' '^schedule\.(commands|delay|delayed)$' '^scheduler_dead$' "$@"

# The host publishes commands and delayed messages, and owns the queues whose names begin with mainapp_ (and reply queues).
user scheduler_host "$HOST_PASSWORD" \
    '^(mainapp_.*|amq\.gen.*)$' \
    '^(schedule\.(commands|delay)|mainapp_.*|amq\.gen.*)$' \
    '^(schedule\.(events|delayed)|mainapp_.*|amq\.gen.*)$' "$@"
