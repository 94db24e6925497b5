#!/usr/bin/env bash
# Builds the search service and starts it with everything embedded: a test feed and a store in a file.
# It prints its URLs once it has events. Ctrl-C stops it.
#
#   LISTEN=127.0.0.1:8080   where the service listens
#   METRICS=127.0.0.1:9090  where its metrics are
#   DATA=target/run/search  where events are kept from one run to the next
#
# Arguments go to the service: scripts/run.sh --workers 1
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked -p highwater-search
exec "${CARGO_TARGET_DIR:-target}/release/highwater-search" --demo \
  --listen "${LISTEN:-127.0.0.1:8080}" --metrics "${METRICS:-127.0.0.1:9090}" --data "${DATA:-target/run/search}" "$@"
