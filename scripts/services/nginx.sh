#!/usr/bin/env bash
# nginx.sh start UPSTREAM...|stop|url: a private nginx in front of servers, with the configuration of deploy/nginx.
#
# start  installs nginx if it is missing (apt, as root), starts it with deploy/nginx/nginx.conf in front of the upstreams
#        (127.0.0.1:8080 ...), waits until it listens, and prints its URL. If this script's nginx runs already on the
#        port, it is stopped first: it had other upstreams.
# stop   stops it, after the requests in flight.
# url    prints the URL.
#
# Settings: HW_NGINX_PORT (28080; each port is an instance of its own), HW_NGINX_KEEP (on; off: a connection to the
# upstreams for each request; plain: so does nginx without any of our settings), HW_SERVICES_DIR (target/services in this
# repository). A killed test cannot stop it, so it
# stops automatically after HW_NGINX_LIFE (1h).
set -euo pipefail

# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
port=${HW_NGINX_PORT:-28080}
dir=$services/nginx-$port
url="http://127.0.0.1:$port"

# The command line is unique.
running() {
  running_with -F -- "-c $dir/nginx.conf"
}

# Mounts and names of the container are replaced by local values; everything else is as deployed.
configure() {
  mkdir -p "$dir"
  printf 'server %s max_fails=0;\n' "$@" >"$dir/upstreams.conf"
  [ "${HW_NGINX_KEEP:-on}" != plain ] || printf 'server %s;\n' "$@" >"$dir/upstreams.conf"
  sed -e "s|listen 8080 |listen 127.0.0.1:$port |" -e "s|/tmp/nginx|$dir|g" -e "s|/dev/stderr|$dir/error.log|" \
    -e "s|listen 8081;|listen 127.0.0.2:$port;|" "$root/deploy/nginx/nginx.conf" >"$dir/nginx.conf"
  case ${HW_NGINX_KEEP:-on} in
    off) sed -i 's|proxy_set_header Connection $connection_upgrade;|proxy_set_header Connection close;|' "$dir/nginx.conf" ;;
    plain) sed -i -E '/^ +(proxy_(http_version|set_header|next_upstream|connect)|zone |least_conn|keepalive 1024)/d' "$dir/nginx.conf" ;;
  esac
  # Workers of a server that root started change to another user, who cannot reach every folder.
  [ "$(id -u)" != 0 ] || sed -i '1i user root;' "$dir/nginx.conf"
}

start() {
  local pid
  command -v nginx >/dev/null || install_package nginx nginx
  stop
  refuse_taken_port HW_NGINX_PORT
  rm -rf "$dir"
  configure "$@"
  nginx -q -t -p "$dir" -c "$dir/nginx.conf" -e "$dir/error.log" >&2 || fail "the configuration is refused: $dir/nginx.conf"
  setsid timeout "${HW_NGINX_LIFE:-1h}" nginx -g 'daemon off;' -p "$dir" -c "$dir/nginx.conf" -e "$dir/error.log" \
    >"$dir/log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$dir/pid"
  await "$pid" "$dir/error.log" is_open
}

# Ends when the requests in flight have ended; `timeout` passes the signal on.
stop() {
  stop_with kill -QUIT
}

case "${1:-}" in
  start)
    [ $# -ge 2 ] || fail "usage: nginx.sh start UPSTREAM..."
    shift
    lock "$dir.lock"
    start "$@" 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: nginx.sh start UPSTREAM...|stop|url" ;;
esac
