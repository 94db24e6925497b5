#!/usr/bin/env bash
# nginx.sh start UPSTREAM...|stop|url: a private nginx in front of servers, with the configuration that deploy/nginx has.
#
# start  installs nginx if it is missing (apt, as root), starts it with deploy/nginx/nginx.conf in front of the upstreams
#        (127.0.0.1:8080 ...), waits until it listens, and prints its URL. If this script's nginx runs already on the
#        port, it is stopped first: it had other upstreams.
# stop   stops it, after the requests that are under way.
# url    prints the URL.
#
# Settings: HW_NGINX_PORT (28080; each port is an instance of its own), HW_SERVICES_DIR (target/services in this
# repository). A test that is killed cannot stop it, so it stops by itself after HW_NGINX_LIFE (1h).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
port=${HW_NGINX_PORT:-28080}
dir=${HW_SERVICES_DIR:-$root/target/services}/nginx-$port
url="http://127.0.0.1:$port"

fail() {
  echo "nginx.sh: $*" >&2
  exit 1
}

install_nginx() {
  [ "$(id -u)" = 0 ] || fail "nginx is not installed and we are not root; install it with: sudo apt-get install nginx"
  command -v apt-get >/dev/null || fail "nginx is not installed and there is no apt-get; install its package"
  # Installs without starting the package's own service.
  "$root/scripts/test-deps.sh" >&2 || fail "apt-get could not install nginx; is there a network?"
}

# The id of the process that start started, if it still is that process.
running() {
  local pid
  pid=$(cat "$dir/pid" 2>/dev/null) || return 1
  # A process id can be used again; the command line is unique.
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "-c $dir/nginx.conf" || return 1
  echo "$pid"
}

# What a container gives by its mounts and names is given here by other values; everything else is as deployed.
configure() {
  mkdir -p "$dir"
  printf 'server %s max_fails=3 fail_timeout=1s;\n' "$@" >"$dir/upstreams.conf"
  sed -e "s|listen 8080 |listen 127.0.0.1:$port |" -e "s|/tmp/nginx|$dir|g" -e "s|/dev/stderr|$dir/error.log|" \
    -e "s|listen 8081;|listen 127.0.0.2:$port;|" "$root/deploy/nginx/nginx.conf" >"$dir/nginx.conf"
  # Workers of a server that root started change to another user, who cannot reach every folder.
  [ "$(id -u)" != 0 ] || sed -i '1i user root;' "$dir/nginx.conf"
}

start() {
  local pid
  command -v nginx >/dev/null || install_nginx
  stop
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    fail "port $port is taken by something else; set HW_NGINX_PORT to a free one"
  fi
  rm -rf "$dir"
  configure "$@"
  nginx -q -t -p "$dir" -c "$dir/nginx.conf" -e "$dir/error.log" >&2 || fail "the configuration is refused: $dir/nginx.conf"
  setsid timeout "${HW_NGINX_LIFE:-1h}" nginx -g 'daemon off;' -p "$dir" -c "$dir/nginx.conf" -e "$dir/error.log" \
    >"$dir/log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$dir/pid"
  for _ in {1..300}; do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$url"
      return
    fi
    kill -0 "$pid" 2>/dev/null || fail "it ended at once: $(tail -3 "$dir/error.log")"
    sleep 0.1
  done
  fail "not ready after 30 s: $(tail -3 "$dir/error.log")"
}

stop() {
  local pid
  pid=$(running) || return 0
  # Ends when the requests under way have ended; `timeout` passes it on.
  kill -QUIT "$pid"
  for _ in {1..100}; do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill "$pid" 2>/dev/null || true
  rm -f "$dir/pid"
}

case "${1:-}" in
  start)
    [ $# -ge 2 ] || fail "usage: nginx.sh start UPSTREAM..."
    shift
    # Test programs that start at the same time must not start two of them.
    mkdir -p "$(dirname "$dir")"
    exec 9>"$dir.lock"
    flock 9
    start "$@" 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: nginx.sh start UPSTREAM...|stop|url" ;;
esac
