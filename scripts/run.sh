#!/usr/bin/env bash
# Builds the search service and starts it with everything embedded: a provider feed of its own, a store in a file.
# Ctrl-C stops both. A URL is printed only when something answers there.
#
#   LISTEN=127.0.0.1:8080           where the service listens
#   METRICS=127.0.0.1:9090          where its metrics are
#   PROVIDER_LISTEN=127.0.0.1:8091  where the feed listens
#   DATA=target/run/search          where events are kept from one run to the next
#
# Arguments go to the service: scripts/run.sh --workers 1
set -euo pipefail
cd "$(dirname "$0")/.."

listen=${LISTEN:-127.0.0.1:8080}
metrics=${METRICS:-127.0.0.1:9090}
provider=${PROVIDER_LISTEN:-127.0.0.1:8091}
data=${DATA:-target/run/search}
search=${CARGO_TARGET_DIR:-target}/release/highwater-search

# Both start in milliseconds; what has not answered by then never will.
readonly start_seconds_max=15

provider_pid=
search_pid=

main() {
  cargo build --release --locked -p highwater-search
  mkdir -p "$data"
  # Asked to stop and stopped: that is success, as it is for the service itself.
  trap 'stop 0' INT TERM
  trap 'stop $?' EXIT

  "$search" provider --listen "$provider" &
  provider_pid=$!
  await "the provider" "$provider_pid" "$provider" /

  "$search" --listen "$listen" --metrics "$metrics" --provider-url "http://$provider/" --data "$data" "$@" &
  search_pid=$!
  await "the search service" "$search_pid" "$listen" /health

  cat <<TEXT

  search    http://$listen/search?starts_at=2024-06-01&ends_at=2024-06-30
  health    http://$listen/health
  metrics   http://$metrics/metrics
  provider  http://$provider/

  Ctrl-C stops them.
TEXT
  # Returns with the status of whichever ends first: neither is of use without the other.
  local status=0
  wait -n "$search_pid" "$provider_pid" || status=$?
  return "$status"
}

# await NAME PID HOST:PORT PATH: until it answers anything at all over HTTP, in bash alone: a fresh machine has no curl.
await() {
  local name=$1 pid=$2 host=${3%:*} port=${3##*:} path=$4 line deadline=$((SECONDS + start_seconds_max))
  while ((SECONDS < deadline)); do
    kill -0 "$pid" 2>/dev/null || { echo "run.sh: $name did not start; its message is above" >&2; return 1; }
    if line=$(ask "$host" "$port" "$path" 2>/dev/null) && [[ $line == HTTP/1.* ]]; then return 0; fi
    sleep 0.1
  done
  echo "run.sh: $name did not answer on $3 within $start_seconds_max s" >&2
  return 1
}

# ask HOST PORT PATH: the status line. In a subshell, so that a refused connection ends only that.
ask() (
  exec 3<>"/dev/tcp/$1/$2"
  printf 'GET %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n' "$3" "$1" "$2" >&3
  IFS= read -r -t 2 -u 3 line
  printf '%s\n' "$line"
)

# stop STATUS: the service first, so that it drains while its provider still answers.
stop() {
  local pid
  trap - EXIT INT TERM
  for pid in $search_pid $provider_pid; do
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  exit "$1"
}

main "$@"
