#!/usr/bin/env bash
# redis.sh start|stop|url: a private Redis for tests, on loopback, its files under target/services.
#
# start  installs Redis if it is missing (apt, as root), starts it, waits until it answers, and prints its URL. If this
#        script's Redis runs already on the port, that one is used.
# stop   stops it, and forgets what it held: it writes nothing to disk.
# url    prints the URL.
#
# Settings: HW_REDIS_PORT (26379; each port is an instance of its own), HW_SERVICES_DIR (target/services in this
# repository). A killed test cannot stop it, so it stops automatically after HW_REDIS_LIFE (1h).
set -euo pipefail

# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
port=${HW_REDIS_PORT:-26379}
dir=$services/redis-$port
url="redis://127.0.0.1:$port/0"

# Redis shows its address as its command line; its `timeout` has the address as an argument.
running() {
  running_with -- "redis-server.*--port $port "
}

# In plain Bash: a server that answers PONG on the port is a Redis.
answers() {
  local line
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'PING\r\n' >&3
  read -r -t 5 line <&3
  exec 3>&-
  [[ $line == +PONG* ]]
}

start() {
  local pid
  command -v redis-server >/dev/null || install_package Redis redis-server "install its server package"
  if pid=$(running); then
    await "$pid" "$dir/log" answers
    return
  fi
  refuse_taken_port HW_REDIS_PORT
  mkdir -p "$dir"
  setsid timeout "${HW_REDIS_LIFE:-1h}" redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --save '' \
    --appendonly no --maxmemory 128mb --maxmemory-policy allkeys-lru >"$dir/log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$dir/pid"
  await "$pid" "$dir/log" answers
}

stop() {
  stop_with kill
}

case "${1:-}" in
  start)
    lock "$dir.lock"
    start 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: redis.sh start|stop|url" ;;
esac
