#!/bin/sh
# `make run` on a machine with Docker but without Python: runs docker-compose.yml as its own project until Ctrl-C, and then
# removes its containers and volumes. The files of prepare.sh stay.
set -eu
cd "$(dirname "$0")/../.."
sh deploy/compose/prepare.sh
. ./.env

compose() {
    docker compose --project-name scheduler-try "$@"
}

trap 'compose down --volumes' EXIT
trap 'exit 130' INT TERM
compose up --detach --build --wait consumer producer worker api
token=$(compose exec -T api scheduler token --role admin --tenant '*' --for 24h --sub "${USER:-docker}")
cat <<END

  The sidecar is up. Ctrl-C stops it.
  Console   http://127.0.0.1:${API_PORT:-8080}/ (log in with TOKEN)
  RabbitMQ  127.0.0.1:${AMQP_PORT:-5672}
  Postgres  127.0.0.1:${POSTGRES_PORT:-5432}
  Paste this into another terminal; the console shows its job:

export AMQP_URL=amqp://scheduler_host:$HOST_PASSWORD@127.0.0.1:${AMQP_PORT:-5672}/%2F
export API_URL=http://127.0.0.1:${API_PORT:-8080}
export TOKEN=$token
curl -H 'Content-Type: application/json' -d '{"job_type": "my.first", "run_at": "now", "every": 5}' -H "Authorization: Bearer \$TOKEN" \$API_URL/api/v1/jobs

END
compose logs --follow --since 1s producer worker
