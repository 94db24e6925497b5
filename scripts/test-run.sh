#!/usr/bin/env bash
# What cargo runs the test binaries by (scripts/test.sh): test-run.sh BINARY ARGUMENTS.
#
# A test binary runs as many tests at once as there are cores. Those of the binaries below wait, for deadlines, servers and
# brokers, most of the time: twice as many at once keep two cores half busy.
set -euo pipefail

case $(basename "$1") in
  robustness-*) RUST_TEST_THREADS=$((2 * $(nproc))) ;;
esac
[ -z "${RUST_TEST_THREADS:-}" ] || export RUST_TEST_THREADS
exec "$@"
