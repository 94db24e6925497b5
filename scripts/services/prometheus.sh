#!/usr/bin/env bash
# prometheus.sh start|stop|url: a private Prometheus for tests, on loopback, its data under target/services.
#
# start CONFIG  installs Prometheus if it is missing (apt, as root), starts it with CONFIG, waits until it is ready,
#               and prints its URL. If this script's Prometheus runs already, it is stopped first: it had another CONFIG.
# stop          stops it.
# url           prints the URL.
#
# Settings: HW_PROMETHEUS_PORT (29090), HW_SERVICES_DIR (target/services in this repository).
# Every start deletes the scraped data. A killed test cannot stop it, so it stops automatically after
# HW_PROMETHEUS_LIFE (1h).
set -euo pipefail

# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
port=${HW_PROMETHEUS_PORT:-29090}
dir=$services/prometheus-$port
url="http://127.0.0.1:$port"

# The command line is unique.
running() {
  running_with -F -- "--storage.tsdb.path=$dir/data"
}

# In plain Bash, since a machine with promtool need not have curl.
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
  command -v prometheus >/dev/null ||
    install_package Prometheus prometheus "see https://prometheus.io/download"
  stop
  refuse_taken_port HW_PROMETHEUS_PORT
  rm -rf "$dir"
  mkdir -p "$dir"
  setsid timeout "${HW_PROMETHEUS_LIFE:-1h}" prometheus --config.file="$config" --web.listen-address="127.0.0.1:$port" \
    --storage.tsdb.path="$dir/data" --storage.tsdb.retention.time=1h --log.level=warn >"$dir/log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$dir/pid"
  await "$pid" "$dir/log" is_ready
}

stop() {
  stop_with kill
}

case "${1:-}" in
  start)
    [ $# = 2 ] || fail "usage: prometheus.sh start CONFIG"
    lock "$dir.lock"
    start "$2" 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: prometheus.sh start CONFIG|stop|url" ;;
esac
