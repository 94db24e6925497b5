#!/usr/bin/env bash
# redis.sh start|stop|url: a private Redis for tests, on loopback, its files under target/services.
#
# start  installs Redis if it is missing (apt, as root), starts it, waits until it answers, and prints its URL. If this
#        script's Redis runs already on the port, that one is used.
# stop   stops it, and forgets what it held: it writes nothing to disk.
# url    prints the URL.
#
# Settings: HW_REDIS_PORT (26379; each port is an instance of its own), HW_SERVICES_DIR (target/services in this
# repository). A test that is killed cannot stop it, so it stops by itself after HW_REDIS_LIFE (1h).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
port=${HW_REDIS_PORT:-26379}
dir=${HW_SERVICES_DIR:-$root/target/services}/redis-$port
url="redis://127.0.0.1:$port/0"

fail() {
  echo "redis.sh: $*" >&2
  exit 1
}

install_redis() {
  [ "$(id -u)" = 0 ] || fail "Redis is not installed and we are not root; install it with: sudo apt-get install redis-server"
  command -v apt-get >/dev/null || fail "Redis is not installed and there is no apt-get; install its server package"
  # Installs without starting the package's own service.
  "$root/scripts/test-deps.sh" >&2 || fail "apt-get could not install redis-server; is there a network?"
}

# The id of the process that start started, if it still is that process.
running() {
  local pid
  pid=$(cat "$dir/pid" 2>/dev/null) || return 1
  # A process id can be used again; Redis shows its address as its command line. Its `timeout` has it as an argument.
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- "redis-server.*--port $port " || return 1
  echo "$pid"
}

# Bash's own: what answers PONG on the port is a Redis.
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
  command -v redis-server >/dev/null || install_redis
  if pid=$(running); then
    await "$pid"
    return
  fi
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    fail "port $port is taken by something else; set HW_REDIS_PORT to a free one"
  fi
  mkdir -p "$dir"
  setsid timeout "${HW_REDIS_LIFE:-1h}" redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --save '' \
    --appendonly no --maxmemory 128mb --maxmemory-policy allkeys-lru >"$dir/log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$dir/pid"
  await "$pid"
}

await() {
  for _ in {1..300}; do
    if (answers) 2>/dev/null; then
      echo "$url"
      return
    fi
    kill -0 "$1" 2>/dev/null || fail "it ended at once: $(tail -3 "$dir/log")"
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
    # Test programs that start at the same time must not start two of them.
    mkdir -p "$(dirname "$dir")"
    exec 9>"$dir.lock"
    flock 9
    start 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: redis.sh start|stop|url" ;;
esac
