#!/usr/bin/env bash
# Fills in nginx.conf.in and becomes nginx, in the foreground. Environment: PORT (8080), WORKERS (1), WEB (the
# folder with the files of /web).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# One directory, whatever the port, so that runs leave nothing behind that grows. nginx wants it for bodies that it buffers;
# here are none.
dir=${TMPDIR:-/tmp}/highwater-bench-nginx
mkdir -p "$dir"
chmod 755 "$dir"
# Its paths are not relative to the folder that it was started in.
web=$(realpath --canonicalize-missing "${WEB:-$here/../../bin/web}")
# The file has no name once nginx has it: nobody is there any more to remove it at the end.
conf=$(mktemp)
sed -e "s|@PORT@|${PORT:-8080}|; s|@WORKERS@|${WORKERS:-1}|; s|@DIR@|$dir|; s|@WEB@|$web|" "$here/nginx.conf.in" >"$conf"
exec 9<"$conf"
rm "$conf"
exec nginx -c /proc/self/fd/9 -e stderr
