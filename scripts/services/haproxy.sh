#!/usr/bin/env bash
# haproxy.sh start UPSTREAM[,METRICS]...|stop|url: a private HAProxy in front of servers, with the configuration of
# deploy/haproxy.
#
# start  installs HAProxy if it is missing (apt, as root), starts it with deploy/haproxy/haproxy.cfg in front of the
#        upstreams, waits until it listens, and prints its URL. An upstream is where it serves and, behind a comma, where
#        its metrics are, which are asked whether it is ready: 127.0.0.1:8080,127.0.0.1:9090. If this script's HAProxy
#        runs already on the port, it is stopped first: it had other upstreams.
# stop   stops it, after the requests in flight.
# url    prints the URL.
#
# Settings: HW_HAPROXY_PORT (28081; each port is an instance of its own), HW_SERVICES_DIR (target/services in this
# repository), HW_HAPROXY_KEEP (on; off: a connection to the upstreams for each request). A killed test cannot stop it, so
# it stops automatically after HW_HAPROXY_LIFE (1h).
set -euo pipefail

# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
port=${HW_HAPROXY_PORT:-28081}
dir=$services/haproxy-$port
url="http://127.0.0.1:$port"

# The command line is unique.
running() {
  running_with -F -- "-f $dir/haproxy.cfg"
}

# Names of containers are replaced by addresses; everything else is as deployed.
configure() {
  local upstream servers="" number=0
  mkdir -p "$dir"
  for upstream in "$@"; do
    number=$((number + 1))
    servers+="  server todos$number ${upstream%%,*}"
    [[ $upstream != *,* ]] || servers+=" check addr ${upstream#*,} port ${upstream##*:}"
    [[ $upstream == *,* ]] || servers+=" no-check"
    servers+=$'\n'
  done
  # Loopback may not be bound by all; the descriptors of a test machine may be few.
  awk -v servers="$servers" '/^ *server-template / { printf "%s", servers; next } { print }' "$root/deploy/haproxy/haproxy.cfg" |
    sed -e "s|bind :8080|bind 127.0.0.1:$port|" -e "s|bind :8404|bind 127.0.0.2:$port|" -e 's|^  maxconn .*|  maxconn 4000|' \
      -e 's|^  log stdout.*|  log stdout format raw local0 notice|' >"$dir/haproxy.cfg"
  [ "${HW_HAPROXY_KEEP:-on}" = on ] ||
    sed -i -e 's|option http-keep-alive|option http-server-close|' -e 's|http-reuse safe|http-reuse never|' "$dir/haproxy.cfg"
}

start() {
  local pid
  command -v haproxy >/dev/null || install_package HAProxy haproxy
  stop
  refuse_taken_port HW_HAPROXY_PORT
  rm -rf "$dir"
  configure "$@"
  haproxy -q -c -f "$dir/haproxy.cfg" >&2 || fail "the configuration is refused: $dir/haproxy.cfg"
  setsid timeout --signal=USR1 --kill-after=10s "${HW_HAPROXY_LIFE:-1h}" haproxy -db -f "$dir/haproxy.cfg" -p "$dir/haproxy.pid" \
    >"$dir/log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$dir/pid"
  await "$pid" "$dir/log" is_open
}

# USR1 lets the requests in flight end. `timeout` does not pass it on, so it is sent to HAProxy directly.
stop() {
  stop_with finish
}

finish() {
  pkill -USR1 --parent "$1" haproxy
}

case "${1:-}" in
  start)
    [ $# -ge 2 ] || fail "usage: haproxy.sh start UPSTREAM[,METRICS]..."
    shift
    lock "$dir.lock"
    start "$@" 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: haproxy.sh start UPSTREAM[,METRICS]...|stop|url" ;;
esac
