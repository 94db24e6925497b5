#!/usr/bin/env bash
# Fills in nginx.conf.in and becomes nginx, in the foreground. Environment: PORT (8080), WORKERS (1).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# One directory, whatever the port, so that runs leave nothing behind that grows. nginx wants it for bodies that it buffers;
# here are none.
dir=${TMPDIR:-/tmp}/highwater-bench-nginx
mkdir -p "$dir"
chmod 755 "$dir"
# The file has no name once nginx has it: nobody is there any more to remove it at the end.
conf=$(mktemp)
sed -e "s|@PORT@|${PORT:-8080}|; s|@WORKERS@|${WORKERS:-1}|; s|@DIR@|$dir|" "$here/nginx.conf.in" >"$conf"
exec 9<"$conf"
rm "$conf"
exec nginx -c /proc/self/fd/9 -e stderr
