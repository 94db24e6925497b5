#!/usr/bin/env bash
# prometheus.sh start|stop|url: a private Prometheus for tests, on loopback, its data under target/services.
#
# start CONFIG  installs Prometheus if it is missing (apt, as root), starts it with CONFIG, waits until it is ready,
#               and prints its URL. If this script's Prometheus runs already, it is stopped first: it had another CONFIG.
# stop          stops it.
# url           prints the URL.
#
# Settings: HW_PROMETHEUS_PORT (29090), HW_SERVICES_DIR (target/services in this repository).
# Every start deletes the scraped data. A test that is killed cannot stop it, so it stops by itself after
# HW_PROMETHEUS_LIFE (1h).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
port=${HW_PROMETHEUS_PORT:-29090}
dir=${HW_SERVICES_DIR:-$root/target/services}/prometheus-$port
url="http://127.0.0.1:$port"

fail() {
  echo "prometheus.sh: $*" >&2
  exit 1
}

install_prometheus() {
  [ "$(id -u)" = 0 ] || fail "Prometheus is not installed and we are not root; install it with: sudo apt-get install prometheus"
  command -v apt-get >/dev/null || fail "Prometheus is not installed and there is no apt-get; see https://prometheus.io/download"
  # Installs without starting the package's own service.
  "$root/scripts/test-deps.sh" >&2 || fail "apt-get could not install prometheus; is there a network?"
}

# The id of the process that start started, if it still is that process.
running() {
  local pid
  pid=$(cat "$dir/pid" 2>/dev/null) || return 1
  # A process id can be used again; the command line is unique.
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "--storage.tsdb.path=$dir/data" || return 1
  echo "$pid"
}

# Bash's own, as a machine with promtool need not have curl.
is_ready() {
  local line
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET /-/ready HTTP/1.0\r\n\r\n' >&3
  read -r line <&3
  exec 3>&-
  [[ $line == *" 200 "* ]]
}

start() {
  local config=$1 pid
  [ -f "$config" ] || fail "no such configuration: $config"
  command -v prometheus >/dev/null || install_prometheus
  stop
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    fail "port $port is taken by something else; set HW_PROMETHEUS_PORT to a free one"
  fi
  rm -rf "$dir"
  mkdir -p "$dir"
  setsid timeout "${HW_PROMETHEUS_LIFE:-1h}" prometheus --config.file="$config" --web.listen-address="127.0.0.1:$port" \
    --storage.tsdb.path="$dir/data" --storage.tsdb.retention.time=1h --log.level=warn >"$dir/log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$dir/pid"
  for _ in {1..300}; do
    if (is_ready) 2>/dev/null; then
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
  kill "$pid"
  for _ in {1..100}; do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  rm -f "$dir/pid"
}

case "${1:-}" in
  start)
    [ $# = 2 ] || fail "usage: prometheus.sh start CONFIG"
    # Test programs that start at the same time must not start two of them.
    mkdir -p "$(dirname "$dir")"
    exec 9>"$dir.lock"
    flock 9
    start "$2" 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: prometheus.sh start CONFIG|stop|url" ;;
esac
