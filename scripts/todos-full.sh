#!/usr/bin/env bash
# Builds the Todo service and starts it in full: Postgres, Redis and Kafka on private ports, two instances, a worker,
# and nginx in front. Prints the URLs, a token and commands to try. Ctrl-C stops everything that it started.
#
#   HW_PG_PORT, HW_REDIS_PORT, HW_KAFKA_PORT, HW_NGINX_PORT   other ports (25432, 26379, 29092, 28080)
#   TODOS_PORT=18081                                          the first instance's; then its metrics', and so on
#   WORKERS=1                                                 0: writes wait until you start a worker
#   BINARY=target/debug/highwater-todos                       a service that is built already
set -euo pipefail
cd "$(dirname "$0")/.."

port=${TODOS_PORT:-18081}
workers=${WORKERS:-1}
logs=target/run/todos-full
started=()
processes=()

say() {
  printf '%s\n' "$*"
}

# Starts a server by its script, and stops it later unless it was already running. Sets `url`.
start() {
  local name=$1 address
  address=$("scripts/services/$name.sh" url)
  address=${address##*@} address=${address#*://} address=${address%%/*}
  (exec 3<>"/dev/tcp/${address/://}") 2>/dev/null || started+=("$name")
  say "  starting $name"
  url=$("scripts/services/$name.sh" start)
}

# Starts a process of the service; it ends with this script.
run() {
  local name=$1
  shift
  setpriv --pdeathsig TERM "$binary" "$@" >"$logs/$name.log" 2>&1 </dev/null &
  processes+=($!)
}

await() {
  local process
  for _ in {1..600}; do
    ! curl --silent --fail --output /dev/null "$1" || return 0
    for process in "${processes[@]}"; do
      kill -0 "$process" 2>/dev/null || break 2
    done
    sleep 0.1
  done
  tail -n 5 "$logs"/*.log >&2
  say "todos-full: $1 does not answer; the logs are in $logs" >&2
  return 1
}

stop() {
  trap - EXIT INT TERM
  say "  stopping"
  # nginx first, so that no client meets an instance that has ended.
  scripts/services/nginx.sh stop || true
  if [ "${#processes[@]}" != 0 ]; then
    kill "${processes[@]}" 2>/dev/null || true
    wait "${processes[@]}" 2>/dev/null || true
  fi
  local name
  for name in "${started[@]}"; do scripts/services/"$name".sh stop >/dev/null 2>&1 || true; done
}

binary=${BINARY:-${CARGO_TARGET_DIR:-target}/release/highwater-todos}
[ -n "${BINARY:-}" ] || cargo build --release --locked -p highwater-todos
mkdir -p "$logs"
trap stop EXIT
trap 'exit 0' INT TERM

start postgres
DATABASE_URL=$url
start redis
REDIS_URL=$url
start kafka
KAFKA_BROKERS=$url
JWT_SECRET=${JWT_SECRET:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
export DATABASE_URL REDIS_URL KAFKA_BROKERS JWT_SECRET

for ((number = 0; number < workers; number++)); do
  run "worker-$number" worker --metrics "127.0.0.1:$((port + 4 + number))"
done
run instance-1 --listen "127.0.0.1:$port" --metrics "127.0.0.1:$((port + 1))"
run instance-2 --listen "127.0.0.1:$((port + 2))" --metrics "127.0.0.1:$((port + 3))"
await "http://127.0.0.1:$port/ready"
await "http://127.0.0.1:$((port + 2))/ready"
for ((number = 0; number < workers; number++)); do
  await "http://127.0.0.1:$((port + 4 + number))/livez"
done
url=$(scripts/services/nginx.sh start "127.0.0.1:$port" "127.0.0.1:$((port + 2))")
token=$("$binary" token --subject demo-user)

cat <<SAID

  todos       $url/todos?limit=10      (nginx, in front of both)
  instances   http://127.0.0.1:$port/todos?limit=10
              http://127.0.0.1:$((port + 2))/todos?limit=10
  ready       http://127.0.0.1:$port/ready
  metrics     http://127.0.0.1:$((port + 1))/metrics    http://127.0.0.1:$((port + 3))/metrics
$(for ((number = 0; number < workers; number++)); do
  printf '              http://127.0.0.1:%s/metrics    (the worker)\n' "$((port + 4 + number))"
done)
  Postgres    $DATABASE_URL
  Redis       $REDIS_URL
  Kafka       $KAFKA_BROKERS
  logs        $logs

  TOKEN=$token
  curl -X POST '$url/todos' -H "Authorization: Bearer \$TOKEN" -d '{"title":"Water the plants","description":"All of them"}'
  curl '$url/todos?limit=10'

  Ctrl-C stops everything.
SAID
# Ends if one of them ends.
wait -n "${processes[@]}"
say "todos-full: a process has ended; the logs are in $logs" >&2
exit 1
