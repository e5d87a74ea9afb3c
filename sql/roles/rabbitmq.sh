#!/bin/sh
# Users for RabbitMQ, each with the permissions it needs and no more. SECURITY.md lists what each one can do.
#
# usage: VHOST=/ SIDECAR_PASSWORD=… HOST_PASSWORD=… [WORKER_PASSWORD=…] [COMMAND_WORKER_PASSWORD=…] [API_PASSWORD=…] \
#        [TENANTS='acme:PASSWORD globex:PASSWORD'] sh sql/roles/rabbitmq.sh [rabbitmqctl …]
#        … ADMIN_PASSWORD=… sh sql/roles/rabbitmq.sh --definitions > definitions.json
#
# A user without a password variable is not created. The arguments are the command to run instead of rabbitmqctl, for
# example `docker compose exec -T rabbitmq rabbitmqctl`. --definitions prints the same users as a definitions file
# (`load_definitions` in rabbitmq.conf); then ADMIN_PASSWORD adds the user `admin` with the tag `administrator`.
# Passwords in a definitions file, and those in TENANTS, must consist of letters, digits, - and _.
#
# TENANTS are broker users for tenants who are strangers to each other: the user name is the tenant. Set
# SCHEDULER_TENANT_BY=user_id and SCHEDULER_TENANT_ROUTES=prefix with them. A tenant's name has no dot here, because
# routes are divided by dots.
set -eu
vhost=${VHOST:-/}
definitions=
if [ "${1:-}" = --definitions ]; then definitions=yes; shift; fi
[ $# -gt 0 ] || set -- rabbitmqctl

fail() { printf 'rabbitmq.sh: %s\n' "$1" >&2; exit 64; }

users='' permissions='' topics=''

json() { printf '%s' "$1" | sed 's/\\/\\\\/g'; }  # our patterns contain backslashes, and nothing else to escape

user() { # name, password, configure, write, read, then the command
    name=$1 password=$2 configure=$3 write=$4 read=$5
    shift 5
    if [ -n "$definitions" ]; then
        case $password in *[!A-Za-z0-9_-]*) fail "the password of $name has other characters than A-Z a-z 0-9 _ -" ;; esac
        users="$users${users:+,
    }{\"name\": \"$name\", \"password\": \"$password\", \"tags\": []}"
        permissions="$permissions${permissions:+,
    }{\"user\": \"$name\", \"vhost\": \"$vhost\", \"configure\": \"$(json "$configure")\",
     \"write\": \"$(json "$write")\", \"read\": \"$(json "$read")\"}"
        return
    fi
    # The password goes through standard input, not the process list.
    printf '%s' "$password" | "$@" --quiet add_user "$name" 2>/dev/null ||
        printf '%s' "$password" | "$@" --quiet change_password "$name"
    "$@" --quiet set_permissions -p "$vhost" "$name" "$configure" "$write" "$read"
}

topic() { # name, exchange, routing keys it may publish with, binding keys it may bind with, then the command
    name=$1 exchange=$2 write=$3 read=$4
    shift 4
    if [ -n "$definitions" ]; then
        topics="$topics${topics:+,
    }{\"user\": \"$name\", \"vhost\": \"$vhost\", \"exchange\": \"$exchange\",
     \"write\": \"$(json "$write")\", \"read\": \"$(json "$read")\"}"
        return
    fi
    "$@" --quiet set_topic_permissions -p "$vhost" "$name" "$exchange" "$write" "$read"
}

# The consumers and producers declare the topology, consume the inbox, the results and delayed messages, and publish
# events, dead letters, work, replies and delayed messages. For additional pairs (SCHEDULER_DELAY_EXCHANGES=NAME:TYPE) add
# NAME, NAME\.delay and scheduler_delay_NAME beside schedule\.delayed, schedule\.delay and scheduler_delay.
user scheduler_sidecar "$SIDECAR_PASSWORD" \
    '^(schedule\.(commands|events|dead|work|delay|delayed)|scheduler_(inbox|results|dead|webhooks|delay)|mainapp_due)$' \
    '^(schedule\.(events|dead|work|delayed)|scheduler_(inbox|results|dead|webhooks|delay)|mainapp_due|amq\.default)$' \
    '^(schedule\.(commands|events|dead|work|delay)|scheduler_(inbox|results|delay))$' "$@"

# A worker consumes work and publishes results and liveness messages. It declares the queues of its commands and binds
# them to their own keys; of the shared topology it declares nothing.
worker() { # name, password, queues it consumes, then the command
    name=$1 password=$2 queues=$3
    shift 3
    user "$name" "$password" \
        '^scheduler_(command|answers)_.+$' \
        '^(schedule\.commands|scheduler_command_.+)$' \
        "^(schedule\\.work|scheduler_($queues(command|answers)_.+))\$" "$@"
    topic "$name" schedule.commands '^(result|worker)$' '^$' "$@"
    topic "$name" schedule.work '^$' '^command\.[A-Za-z0-9_.-]+$' "$@"
}
[ -z "${WORKER_PASSWORD:-}" ] || worker scheduler_worker "$WORKER_PASSWORD" 'webhooks|' "$@"
[ -z "${COMMAND_WORKER_PASSWORD:-}" ] || worker scheduler_command_worker "$COMMAND_WORKER_PASSWORD" '' "$@"

# The API reads the dead letters and publishes them again to where they came from.
[ -z "${API_PASSWORD:-}" ] || user scheduler_api "$API_PASSWORD" \
    '^$' '^schedule\.(commands|delay|delayed)$' '^scheduler_dead$' "$@"

# The host publishes commands and delayed messages, and owns the queues whose names begin with mainapp_, and its reply
# queues. The routes of TENANTS are closed to it, and so are wildcards that would match them.
user scheduler_host "$HOST_PASSWORD" \
    '^(mainapp_.*|amq\.gen.*)$' \
    '^(schedule\.(commands|delay)|mainapp_.*|amq\.gen.*)$' \
    '^(schedule\.(events|delayed)|mainapp_.*|amq\.gen.*)$' "$@"

names=
for each in ${TENANTS:-}; do
    tenant=${each%%:*}
    password=${each#*:}
    case $tenant in '' | *[!A-Za-z0-9_-]*) fail "a tenant's name consists of A-Z a-z 0-9 _ -: $tenant" ;; esac
    case $tenant in scheduler_* | default | admin) fail "$tenant cannot be the name of a tenant's user" ;; esac
    case $each in *:?*) ;; *) fail "TENANTS has no password for $tenant" ;; esac
    names="$names${names:+|}$tenant"
    user "$tenant" "$password" \
        "^($tenant:.*|amq\\.gen.*)\$" \
        "^(schedule\\.commands|$tenant:.*|amq\\.gen.*)\$" \
        "^(schedule\\.events|$tenant:.*|amq\\.gen.*)\$" "$@"
    topic "$tenant" schedule.commands '^(request|cancel|pause|resume|trigger|retry|result)$' '^$' "$@"
    topic "$tenant" schedule.events '^$' "^due\\.$tenant(\\..+)?\$" "$@"
done
[ -z "$names" ] ||
    topic scheduler_host schedule.events '^$' "^(due(\\.(?!($names)(\\.|\$))[^*#]+)?)\$" "$@"

if [ -n "$definitions" ]; then
    [ -z "${ADMIN_PASSWORD:-}" ] || {
        user admin "$ADMIN_PASSWORD" '.*' '.*' '.*'
        users=$(printf '%s' "$users" | sed '/"name": "admin"/s/"tags": \[\]/"tags": ["administrator"]/')
    }
    printf '{"vhosts": [{"name": "%s"}],\n "users": [\n    %s],\n "permissions": [\n    %s],\n "topic_permissions": [\n    %s]}\n' \
        "$vhost" "$users" "$permissions" "$topics"
fi
