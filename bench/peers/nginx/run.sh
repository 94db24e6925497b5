#!/usr/bin/env bash
# Fills in nginx.conf.in and becomes nginx, in the foreground. Environment: PORT (8080), WORKERS (1).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# One directory per port, used again by later runs, so that they do not fill the disk.
dir=${TMPDIR:-/tmp}/highwater-bench-nginx-${PORT:-8080}
mkdir -p "$dir"
chmod 755 "$dir"
sed -e "s|@PORT@|${PORT:-8080}|; s|@WORKERS@|${WORKERS:-1}|; s|@DIR@|$dir|" "$here/nginx.conf.in" > "$dir/nginx.conf"
exec nginx -c "$dir/nginx.conf" -e stderr
