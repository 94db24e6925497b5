#!/usr/bin/env bash
# The runner of test binaries for cargo (scripts/test.sh): test-run.sh BINARY ARGUMENTS.
#
# TEST_LANE names the lane that cargo runs for: a binary of another lane is left to that one, and nothing is printed.
# Without a lane, every binary runs. With TEST_PACKAGE, only those of that package do.
set -euo pipefail

main() {
  local name threads
  name=$(basename "$1")
  name=${CARGO_PKG_NAME:-}/${name%-*}
  [ -z "${TEST_LANE:-}" ] || [ "$TEST_LANE" = "$(lane_of "$name")" ] || exit 0
  [ -z "${TEST_PACKAGE:-}" ] || [ "$TEST_PACKAGE" = "${CARGO_PKG_NAME:-}" ] || exit 0
  [ -z "${TEST_LANE:-}" ] || printf -- '-- %s\n' "$name"
  threads=${RUST_TEST_THREADS:-$(threads_of "$name")}
  [ -z "$threads" ] || export RUST_TEST_THREADS=$threads
  exec "$@"
}

# The lane of PACKAGE/BINARY. `scripts/test.sh` says what each of them is for. A name that is not here, such as that of a
# new test, only computes; a test that needs a clock or a server of another kind belongs to one of the others.
lane_of() {
  case $1 in
    # Doc tests: cargo runs them in this lane only.
    */rust_out) echo computing ;;

    # They measure, and what else runs on the machine is in their figures: CPU time of the whole machine, goodput of
    # servers at several times their capacity, and who gets how much of it.
    highwater-cli/bench | highwater-cli/guard | highwater/admission | highwater/concurrency | highwater/fair) echo alone ;;

    # Unit tests of services: models and simulations.
    highwater-ingest/highwater_ingest | highwater-search/highwater_search | highwater-todos/highwater_todos) echo computing ;;
    # Kafka, Postgres, Redis, Chromium; one binary after the other, since a broker and a browser need memory.
    highwater-batcher/kafka | highwater-example-postgres/* | highwater-ingest/* | highwater-search/* | highwater-todos/*) echo waiting ;;
    highwater-tests/browser | highwater/response_cache_redis) echo waiting ;;
    # Deadlines, drains and probes of real servers, and what clients see meanwhile.
    highwater-tests/callers | highwater-tests/listeners | highwater-tests/robustness) echo waiting ;;
    highwater-cli/load | highwater-cli/load_mix | highwater-cli/load_wire | highwater-cli/top) echo waiting ;;
    highwater/hooks | highwater/lifecycle | highwater/runtime | highwater/tls_certificates) echo waiting ;;
    highwater/websocket_clients | highwater-example-axum/both | highwater-example-axum/process) echo waiting ;;
    # The kernel's queues and timers.
    highwater-sys/*) echo waiting ;;

    *) echo computing ;;
  esac
}

# A test binary runs as many tests at once as there are cores. Those of the robustness tests mostly wait for deadlines: twice
# as many at once keep two cores half busy.
threads_of() {
  case $1 in
    highwater-tests/robustness) echo $((2 * $(nproc))) ;;
  esac
}

main "$@"
