#!/usr/bin/env bash
# The runner of test binaries for cargo (scripts/test.sh): test-run.sh BINARY ARGUMENTS.
#
# A test binary runs as many tests at once as there are cores. The tests of the binaries below mostly wait for deadlines,
# servers and brokers: twice as many at once keep two cores half busy.
set -euo pipefail

case $(basename "$1") in
  robustness-*) RUST_TEST_THREADS=$((2 * $(nproc))) ;;
esac
[ -z "${RUST_TEST_THREADS:-}" ] || export RUST_TEST_THREADS
exec "$@"
