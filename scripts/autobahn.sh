#!/usr/bin/env bash
# autobahn.sh [OUTDIR]: runs Autobahn's cases for WebSocket servers against the arena's /ws, over io_uring where it works and
# over epoll, and those of compression (12, 13) against /ws/deflate and /ws/deflate/kept. kosoku runs Autobahn's own case files; it is downloaded once from PyPI. Version and checksum are fixed here.
# Reports are written to OUTDIR, target/autobahn unless given. BIN is the folder of highwater-arena: target/fast.
#
# Cases of speed (9) are run: they have large messages.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=0.1.0
dir=$root/target/tools/kosoku-$version
out=${1:-$root/target/autobahn}
bin=${BIN:-$root/target/fast}
port=${PORT:-18967}

fail() {
  echo "autobahn.sh: $*" >&2
  exit 1
}

fetch() {
  local requirements
  requirements=$(mktemp "$dir/requirements.XXXX")
  cat >"$requirements" <<PINNED
kosoku==$version --hash=sha256:a9b34e593defe29d931e346c88947b58a015495f09dd13643e4cc952c75602ac
PINNED
  pip3 install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes --only-binary :all: --upgrade \
    --target "$dir" --requirement "$requirements" >&2 || fail "pip3 could not fetch kosoku $version; is there a network?"
  rm -f "$requirements"
}

# kosoku hands uncompressed messages to its cases as text, which the cases of compression do not expect: a server may send a
# message as it is if it does not become smaller (RFC 7692 §6).
mend() {
  local case=$dir/kosoku/cases/case12_x_x.py
  grep -q 'isinstance(msg, str)' "$case" ||
    sed -i "s/^def onMessage(self, msg, binary):\$/&\n   if isinstance(msg, str): msg = msg.encode('latin-1' if binary else 'utf-8')/" "$case"
}

mkdir -p "$dir" "$out"
exec 9>"$dir.lock"
flock 9
[ -x "$dir/bin/kosoku" ] || fetch
mend
exec 9>&-
[ -x "$bin/highwater-arena" ] || fail "there is no $bin/highwater-arena; build it, or set BIN to its folder"

server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
}
trap cleanup EXIT

for transport in auto epoll; do
  "$bin/highwater-arena" --listen "127.0.0.1:$port" --metrics off --log off --workers 1 --transport "$transport" &
  server=$!
  for _ in $(seq 100); do
    ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    sleep 0.1
  done
  echo "transport $transport"
  PYTHONPATH=$dir "$dir/bin/kosoku" -p 4 -x '12.*' -x '13.*' -o "$out/$transport" "ws://127.0.0.1:$port/ws"
  for path in deflate deflate/kept; do
    echo "compression: /ws/$path"
    PYTHONPATH=$dir "$dir/bin/kosoku" -p 4 -i '12.*' -i '13.*' -o "$out/$transport-${path/\//-}" "ws://127.0.0.1:$port/ws/$path"
  done
  kill "$server"
  wait "$server" || true
  server=
done
