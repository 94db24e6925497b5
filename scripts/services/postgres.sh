#!/usr/bin/env bash
# postgres.sh start|stop|url: a private Postgres server for tests, on loopback, its data under target/services.
#
# start  installs Postgres if it is missing (apt, as root), starts it, and prints its URL. If a server that
#        accepts our user already answers on the port, that one is used.
# stop   stops the server that start started; its data stays.
# url    prints the URL.
#
# Settings: HW_PG_PORT (25432), HW_SERVICES_DIR (target/services in this repository).
# Commits are not synced (fsync=off): this server is for tests that kill clients, not machines.
set -euo pipefail

# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
port=${HW_PG_PORT:-25432}
dir=$services/postgres
url="postgres://highwater@127.0.0.1:$port/highwater"

find_bin() {
  local initdb
  # shellcheck disable=SC2012  # version numbers
  initdb=$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -1)
  [ -n "$initdb" ] || initdb=$(command -v initdb) || return 1
  dirname "$(readlink -f "$initdb")"
}

install_postgres() {
  [ "$(id -u)" = 0 ] || fail "Postgres is not installed and we are not root; install it with: sudo apt-get install postgresql"
  command -v apt-get >/dev/null || fail "Postgres is not installed and there is no apt-get; install its server package"
  export DEBIAN_FRONTEND=noninteractive
  # Without this the package would start its own server.
  mkdir -p /etc/postgresql-common
  grep -qs '^create_main_cluster' /etc/postgresql-common/createcluster.conf ||
    echo 'create_main_cluster = false' >>/etc/postgresql-common/createcluster.conf
  { apt-get update -qq && apt-get install -y -qq postgresql; } >&2 || fail "apt-get could not install postgresql; is there a network?"
}

# initdb and postgres refuse to run as root, so root becomes postgres.
as_postgres() {
  if [ "$(id -u)" = 0 ]; then
    (cd / && exec setpriv --reuid=postgres --regid=postgres --init-groups env HOME="$dir" "$@")
  else
    "$@"
  fi
}

psql_admin() {
  "$bin/psql" -qAtX -h 127.0.0.1 -p "$port" -U highwater -d postgres "$@"
}

# The server's user must be able to reach its data, although other users may own the parent folders.
choose_data() {
  mkdir -p "$dir"
  if [ "$(id -u)" = 0 ]; then
    chown postgres:postgres "$dir"
    as_postgres test -w "$dir" || {
      dir=/var/tmp/highwater-services-$(echo "$root" | cksum | cut -d' ' -f1)/postgres
      mkdir -p "$dir"
      chmod 711 "$(dirname "$dir")" # Whatever the umask of root is.
      chown postgres:postgres "$dir"
    }
  fi
  chmod 700 "$dir"
}

create_cluster() {
  as_postgres "$bin/initdb" -D "$dir/data" -U highwater -A trust --encoding=UTF8 --locale=C --no-sync >"$dir.initdb.log" 2>&1 ||
    fail "initdb failed: $(tail -3 "$dir.initdb.log")"
  as_postgres tee -a "$dir/data/postgresql.conf" >/dev/null <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = ''
shared_buffers = 64MB
fsync = off
synchronous_commit = off
full_page_writes = off
CONF
}

start() {
  bin=$(find_bin) || { install_postgres && bin=$(find_bin); } || fail "Postgres was installed but initdb is not where it should be"
  if ! psql_admin -c 'select 1' >/dev/null 2>&1; then
    refuse_taken_port HW_PG_PORT
    choose_data
    [ -f "$dir/data/PG_VERSION" ] || create_cluster
    as_postgres "$bin/pg_ctl" -D "$dir/data" -o "-p $port" -l "$dir/log" -w -t 60 start >/dev/null ||
      fail "the server did not start: $(tail -3 "$dir/log")"
  fi
  [ "$(psql_admin -c "select 1 from pg_database where datname = 'highwater'")" = 1 ] ||
    psql_admin -c 'create database highwater' ||
    [ "$(psql_admin -c "select 1 from pg_database where datname = 'highwater'")" = 1 ]
  echo "$url"
}

stop() {
  bin=$(find_bin) || fail "Postgres is not installed"
  choose_data
  as_postgres "$bin/pg_ctl" -D "$dir/data" -m fast -w stop >/dev/null
}

case "${1:-}" in
  start)
    lock "$(dirname "$dir")/postgres.lock"
    start 9>&-
    ;;
  stop) stop ;;
  url) echo "$url" ;;
  *) fail "usage: postgres.sh start|stop|url" ;;
esac
