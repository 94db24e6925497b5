#!/usr/bin/env bash
# haproxy.sh start UPSTREAM[,METRICS]...|stop|url: a private HAProxy in front of servers, with the configuration that
# deploy/haproxy has.
#
# start  installs HAProxy if it is missing (apt, as root), starts it with deploy/haproxy/haproxy.cfg in front of the
#        upstreams, waits until it listens, and prints its URL. An upstream is where it serves and, behind a comma, where
#        its metrics are, which are asked whether it is ready: 127.0.0.1:8080,127.0.0.1:9090. If this script's HAProxy
#        runs already on the port, it is stopped first: it had other upstreams.
# stop   stops it, after the requests that are under way.
# url    prints the URL.
#
# Settings: HW_HAPROXY_PORT (28081; each port is an instance of its own), HW_SERVICES_DIR (target/services in this
# repository). A test that is killed cannot stop it, so it stops by itself after HW_HAPROXY_LIFE (1h).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
port=${HW_HAPROXY_PORT:-28081}
dir=${HW_SERVICES_DIR:-$root/target/services}/haproxy-$port
url="http://127.0.0.1:$port"

fail() {
  echo "haproxy.sh: $*" >&2
  exit 1
}

install_haproxy() {
  [ "$(id -u)" = 0 ] || fail "HAProxy is not installed and we are not root; install it with: sudo apt-get install haproxy"
  command -v apt-get >/dev/null || fail "HAProxy is not installed and there is no apt-get; install its package"
  # Installs without starting the package's own service.
  "$root/scripts/test-deps.sh" >&2 || fail "apt-get could not install haproxy; is there a network?"
}

# The id of the process that start started, if it still is that process.
running() {
  local pid
  pid=$(cat "$dir/pid" 2>/dev/null) || return 1
  # A process id can be used again; the command line is unique.
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "-f $dir/haproxy.cfg" || return 1
  echo "$pid"
}

# What a container gives by its names is given here by addresses; everything else is as deployed.
configure() {
  local upstream servers= number=0
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
}

start() {
  local pid
  command -v haproxy >/dev/null || install_haproxy
  stop
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    fail "port $port is taken by something else; set HW_HAPROXY_PORT to a free one"
  fi
  rm -rf "$dir"
  configure "$@"
  haproxy -q -c -f "$dir/haproxy.cfg" >&2 || fail "the configuration is refused: $dir/haproxy.cfg"
  setsid timeout --signal=USR1 --kill-after=10s "${HW_HAPROXY_LIFE:-1h}" haproxy -db -f "$dir/haproxy.cfg" -p "$dir/haproxy.pid" \
    >"$dir/log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$dir/pid"
  for _ in {1..300}; do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$url"
      return
    fi
    kill -0 "$pid" 2>/dev/null || fail "it ended at once: $(tail -3 "$dir/log")"
    sleep 0.1
  done
  fail "not ready after 30 s: $(tail -3 "$dir/log")"
}

stop() {
  local pid
  pid=$(running) || return 0
  # USR1 lets the requests under way end. `timeout` does not pass it on, so it goes to HAProxy itself.
  pkill -USR1 --parent "$pid" haproxy || true
  for _ in {1..100}; do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill "$pid" 2>/dev/null || true
  rm -f "$dir/pid"
}

case "${1:-}" in
  start)
    [ $# -ge 2 ] || fail "usage: haproxy.sh start UPSTREAM[,METRICS]..."
    shift
    # Test programs that start at the same time must not start two of them.
    mkdir -p "$(dirname "$dir")"
    exec 9>"$dir.lock"
    flock 9
    start "$@" 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: haproxy.sh start UPSTREAM[,METRICS]...|stop|url" ;;
esac
