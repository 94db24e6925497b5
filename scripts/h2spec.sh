#!/usr/bin/env bash
# h2spec.sh: runs h2spec's cases for HTTP/2 servers against the arena: in plain text and over TLS, over io_uring where it works
# and over epoll. Go builds h2spec once, at the version given here. BIN is the folder of highwater-arena: target/fast.
#
# The cases send POST and content to the path, so it must be one that reads content: with --probe, "/" does. One case needs an
# answer of five bytes and is skipped there; it is run at "/plaintext". Exits 1 if any case fails.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=v2.2.1+incompatible
dir=$root/target/tools/h2spec-$version
bin=${BIN:-$root/target/fast}
port=${PORT:-18971}
short_answer=http2/6.9.2/1

fail() {
  echo "h2spec.sh: $*" >&2
  exit 1
}

command -v go >/dev/null || fail "needs go, to build h2spec"
[ -x "$bin/highwater-arena" ] || fail "there is no $bin/highwater-arena; build it, or set BIN to its folder"
[ -x "$dir/h2spec" ] || GOBIN=$dir go install "github.com/summerwind/h2spec/cmd/h2spec@$version"

scratch=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$scratch/key.pem" -out "$scratch/certificate.pem" 2>/dev/null

status=0
cases() {
  local name=$1 said
  shift
  said=$("$dir/h2spec" --host 127.0.0.1 --timeout 3 "$@") || status=1
  grep -E '^ *×|Actual' <<<"$said" || true
  echo "$name: $(tail -1 <<<"$said")"
}

for transport in auto epoll; do
  "$bin/highwater-arena" --probe --listen "127.0.0.1:$port,http2" --listen "127.0.0.1:$((port + 1)),tls" \
    --tls-cert "$scratch/certificate.pem" --tls-key "$scratch/key.pem" --metrics off --log off --workers 1 \
    --transport "$transport" &
  server=$!
  for _ in $(seq 100); do
    ! (exec 3<>"/dev/tcp/127.0.0.1/$((port + 1))") 2>/dev/null || break
    sleep 0.1
  done
  cases "$transport, plain" --port "$port" --path /
  cases "$transport, plain, an answer of 13 bytes" --port "$port" --path /plaintext "$short_answer"
  cases "$transport, TLS" --port "$((port + 1))" --path / --tls --insecure
  kill "$server"
  wait "$server" || true
  server=
done
exit "$status"
