#!/bin/sh
# Two users for RabbitMQ: the sidecar's and the host's, each with what it needs and no more.
# usage: VHOST=/ SIDECAR_PASSWORD=… HOST_PASSWORD=… sh sql/roles/rabbitmq.sh [rabbitmqctl …]
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

# The sidecar declares the topology, consumes its inbox and the results, publishes events, dead letters and replies.
user scheduler_sidecar "$SIDECAR_PASSWORD" \
    '^(schedule\.(commands|events|dead)|scheduler_(inbox|results|dead)|mainapp_due)$' \
    '^(schedule\.(events|dead)|scheduler_(inbox|results|dead)|mainapp_due|amq\.default)$' \
    '^(schedule\.(commands|events|dead)|scheduler_(inbox|results))$' "$@"

# The host publishes commands, and owns the queues whose names begin with mainapp_ (and reply queues).
user scheduler_host "$HOST_PASSWORD" \
    '^(mainapp_.*|amq\.gen.*)$' \
    '^(schedule\.commands|mainapp_.*|amq\.gen.*)$' \
    '^(schedule\.events|mainapp_.*|amq\.gen.*)$' "$@"
