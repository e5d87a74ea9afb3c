#!/bin/sh
# Create RabbitMQ users, each with only the permissions that it needs. SECURITY.md lists them.
#
# usage: VHOST=/ SIDECAR_PASSWORD=… HOST_PASSWORD=… [WORKER_PASSWORD=…] [COMMAND_WORKER_PASSWORD=…] [API_PASSWORD=…] \
#        [WORKER_POOLS='gpu eu'] [TENANTS='acme:PASSWORD globex:PASSWORD'] [TENANT_QUEUES='events mails'] \
#        sh sql/roles/rabbitmq.sh [rabbitmqctl …]
#        … ADMIN_PASSWORD=… sh sql/roles/rabbitmq.sh --definitions > definitions.json
#
# A user without a password variable is not created. Arguments replace the command rabbitmqctl, for
# example `docker compose exec -T rabbitmq rabbitmqctl`. --definitions prints the definitions file instead of importing
# it (for `load_definitions` in rabbitmq.conf). ADMIN_PASSWORD adds the user `admin` with the tag `administrator`.
# Passwords pass through standard input, so they do not appear in the process list.
#
# WORKER_POOLS are the named pools whose webhooks scheduler_worker may call: it may declare, bind and read their queues
# scheduler_webhooks.POOL. Commands need no entry: a worker's user may declare the queues of commands in every pool.
# Work of high and low priority has separate queues in each pool: scheduler_webhooks.POOL.high and .low; the unnamed
# pool is called default there.
#
# TENANTS are broker users for tenants that do not trust each other: the user name is the tenant. Set
# SCHEDULER_TENANT_BY=user_id and SCHEDULER_TENANT_ROUTES=prefix with them. A tenant's name must not contain a dot,
# because dots separate routes. A tenant declares and binds nothing at the broker: the script creates its queues and
# binds them to its route, and the tenant reads them. With TENANTS, these settings apply:
#   TENANT_QUEUES       names of the queues of each tenant, after TENANT: (default: events, which is TENANT:events). A
#                       queue receives all of the tenant's events, or with NAME=KEY those with the key due.TENANT.KEY
#   TENANT_QUEUE_BYTES  of each of a tenant's queues, and of each broker-named queue (default: 100 MiB)
#   TENANT_CONNECTIONS, TENANT_CHANNELS  of each tenant (default: 10, 10). Each channel can hold one message of
#                       max_message_size in the broker's memory
#   MAX_QUEUES          of the virtual host (default: 10000)
#   DEAD_QUEUE_BYTES    of scheduler_dead, which then drops its oldest messages (default: 1 GiB)
set -eu
vhost=${VHOST:-/}

fail() { printf 'rabbitmq.sh: %s\n' "$1" >&2; exit 64; }

json() { printf '%s' "$1" | sed 's/[\\"]/\\&/g'; }

users='' permissions='' topics='' policies='' parameters='' queues='' bindings='' comma=',
    '

user() { # name, password, configure, write, read, tags, limits
    users="$users${users:+$comma}{\"name\": \"$1\", \"password\": \"$(json "$2")\", \"tags\": \"${6:-}\"\
${7:+, \"limits\": {$7\}}}"
    permissions="$permissions${permissions:+$comma}{\"user\": \"$1\", \"vhost\": \"$(json "$vhost")\", \
\"configure\": \"$(json "$3")\", \"write\": \"$(json "$4")\", \"read\": \"$(json "$5")\"}"
}

topic() { # name, exchange, routing keys it may publish with, binding keys it may bind with
    topics="$topics${topics:+$comma}{\"user\": \"$1\", \"vhost\": \"$(json "$vhost")\", \"exchange\": \"$2\", \
\"write\": \"$(json "$3")\", \"read\": \"$(json "$4")\"}"
}

policy() { # name, pattern of queues, definition
    policies="$policies${policies:+$comma}{\"name\": \"$1\", \"vhost\": \"$(json "$vhost")\", \
\"pattern\": \"$(json "$2")\", \"apply-to\": \"queues\", \"priority\": 0, \"definition\": {$3}}"
}

queue() { # name
    queues="$queues${queues:+$comma}{\"name\": \"$1\", \"vhost\": \"$(json "$vhost")\", \"durable\": true, \
\"auto_delete\": false, \"arguments\": {\"x-queue-type\": \"quorum\"}}"
}

binding() { # queue, key
    bindings="$bindings${bindings:+$comma}{\"source\": \"schedule.events\", \"vhost\": \"$(json "$vhost")\", \
\"destination\": \"$1\", \"destination_type\": \"queue\", \"routing_key\": \"$2\", \"arguments\": {}}"
}

# Consumers and producers declare the topology, consume the inbox, the results and delayed messages, and publish
# events, dead letters, work, replies and delayed messages. For additional pairs (SCHEDULER_DELAY_EXCHANGES=NAME:TYPE) add
# NAME, NAME\.delay and scheduler_delay_NAME next to schedule\.delayed, schedule\.delay and scheduler_delay.
user scheduler_sidecar "$SIDECAR_PASSWORD" \
    '^(schedule\.(commands|events|dead|work|delay|delayed)|scheduler_(inbox|results|dead|webhooks|delay)|mainapp_due)$' \
    '^(schedule\.(events|dead|work|delayed)|scheduler_(inbox|results|dead|webhooks|delay)|mainapp_due|amq\.default)$' \
    '^(schedule\.(commands|events|dead|work|delay)|scheduler_(inbox|results|delay))$'

pools='default\.(high|low)'
for pool in ${WORKER_POOLS:-}; do
    case $pool in *[!A-Za-z0-9_-]*) fail "a pool's name consists of A-Z a-z 0-9 _ -: $pool" ;; esac
    pools="$pools|$pool(\\.(high|low))?"
done

# A worker consumes work and publishes results and liveness messages. It declares only the queues of its
# commands, of WORKER_POOLS and of priorities, and binds them to their own keys.
worker() { # name, password, queues it consumes
    owned= keys=
    [ -z "$3" ] || owned="scheduler_(${3%|})\\.($pools)\$|^" keys="[a-z]+\\.($pools)\$|^"
    user "$1" "$2" \
        "^$owned"'scheduler_(command|answers)_.+$' \
        "^$owned"'(schedule\.commands|scheduler_command_.+)$' \
        "^$owned(schedule\\.work|scheduler_($3(command|answers)_.+))\$"
    topic "$1" schedule.commands '^(result|worker)$' '^$'
    topic "$1" schedule.work '^$' "^$keys"'command\.[A-Za-z0-9_.-]+$'
}
[ -z "${WORKER_PASSWORD:-}" ] || worker scheduler_worker "$WORKER_PASSWORD" 'webhooks|'
[ -z "${COMMAND_WORKER_PASSWORD:-}" ] || worker scheduler_command_worker "$COMMAND_WORKER_PASSWORD" ''

# The API reads the dead letters and replays them to their source exchange.
[ -z "${API_PASSWORD:-}" ] || user scheduler_api "$API_PASSWORD" \
    '^$' '^schedule\.(commands|delay|delayed)$' '^scheduler_dead$'

# The host publishes commands and delayed messages, and owns queues named mainapp_… and its reply
# queues. It cannot bind to the routes of TENANTS or to wildcards that match them.
user scheduler_host "$HOST_PASSWORD" \
    '^(mainapp_.*|amq\.gen.*)$' \
    '^(schedule\.(commands|delay)|mainapp_.*|amq\.gen.*)$' \
    '^(schedule\.(events|delayed)|mainapp_.*|amq\.gen.*)$'

# A full queue rejects events, which stay due: a tenant that consumes nothing does not fill the broker's disk.
bounded="\"max-length-bytes\": ${TENANT_QUEUE_BYTES:-104857600}, \"overflow\": \"reject-publish\""
names=
for entry in ${TENANTS:-}; do
    tenant=${entry%%:*}
    password=${entry#*:}
    case $tenant in '' | *[!A-Za-z0-9_-]*) fail "a tenant's name consists of A-Z a-z 0-9 _ -: $tenant" ;; esac
    case $tenant in scheduler_* | default | admin) fail "$tenant cannot be the name of a tenant's user" ;; esac
    case $entry in *:?*) ;; *) fail "TENANTS has no password for $tenant" ;; esac
    names="$names${names:+|}$tenant"
    # No configure permission. RabbitMQ has no limit of queues per user, and each queue on a route is one more copy
    # of each event; the permission would also cover exchanges, with bindings that take exponential time to match.
    # No binding either: RabbitMQ limits neither the number of bindings nor the size of their arguments, and keeps
    # them all in memory.
    user "$tenant" "$password" '^$' '^schedule\.commands$' "^$tenant:.*\$" \
        '' "\"max-connections\": ${TENANT_CONNECTIONS:-10}, \"max-channels\": ${TENANT_CHANNELS:-10}"
    topic "$tenant" schedule.commands '^(request|pause|resume|trigger|cancel|retry|calendar|result)$' '^$'
    policy "tenant-$tenant" "^$tenant:" "$bounded"
    for entry in ${TENANT_QUEUES:-events}; do
        name=${entry%%=*}
        key=${entry#*=}
        [ "$key" != "$entry" ] || key='#'
        case $name in '' | *[!A-Za-z0-9_.-]*) fail "a tenant's queue name consists of A-Z a-z 0-9 . _ -: $name" ;; esac
        # One wildcard, at the end: RabbitMQ needs exponential time to match a key with many.
        case ${key%[*#]} in *[!A-Za-z0-9_.-]*) fail "a key has at most one wildcard, at its end: $entry" ;; esac
        queue "$tenant:$name"
        binding "$tenant:$name" "due.$tenant.$key"
    done
done
if [ -n "$names" ]; then
    topic scheduler_host schedule.events '^$' "^(due(\\.(?!($names)(\\.|\$))[^*#]+)?)\$"
    policy broker-named '^amq\.gen' "$bounded"
    # Not reject-publish: consumers wait until scheduler_dead accepts a rejected command.
    policy scheduler-dead '^scheduler_dead$' "\"max-length-bytes\": ${DEAD_QUEUE_BYTES:-1073741824}"
    parameters="{\"component\": \"vhost-limits\", \"vhost\": \"$(json "$vhost")\", \"name\": \"limits\", \
\"value\": {\"max-queues\": ${MAX_QUEUES:-10000}}}"
fi

[ -z "${ADMIN_PASSWORD:-}" ] || user admin "$ADMIN_PASSWORD" '.*' '.*' '.*' administrator

# RabbitMQ 4 accepts a topic permission only for an exchange that exists.
exchanges=
for name in schedule.commands schedule.events schedule.work; do
    exchanges="$exchanges${exchanges:+$comma}{\"name\": \"$name\", \"vhost\": \"$(json "$vhost")\", \"type\": \"topic\", \
\"durable\": true, \"auto_delete\": false, \"internal\": false, \"arguments\": {}}"
done

definitions() {
    printf '{"vhosts": [{"name": "%s"}],\n "users": [\n    %s],\n "permissions": [\n    %s],\n' \
        "$(json "$vhost")" "$users" "$permissions"
    printf ' "policies": [\n    %s],\n "parameters": [\n    %s],\n "exchanges": [\n    %s],\n' \
        "$policies" "$parameters" "$exchanges"
    printf ' "queues": [\n    %s],\n "bindings": [\n    %s],\n' "$queues" "$bindings"
    printf ' "topic_permissions": [\n    %s]}\n' "$topics"
}

if [ "${1:-}" = --definitions ]; then
    definitions
else
    [ $# -gt 0 ] || set -- rabbitmqctl
    definitions | "$@" import_definitions > /dev/null
fi
