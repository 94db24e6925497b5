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
  # Some tests compile, as whoever uses the library does.
  unset RUSTC_WORKSPACE_WRAPPER
  # trybuild compiles what its cases need without a width for messages, and the cases with one: for cargo, that is other flags,
  # with which it would compile everything again. In this variable the flags, which are trybuild's own, are the same for both.
  [ "$name" != highwater-ui/ui ] ||
    export CARGO_ENCODED_RUSTFLAGS=$'--cfg\x1ftrybuild\x1f--verbose\x1f-A\x1fdead_code\x1f--diagnostic-width=140'
  [ -n "${TEST_LANE:-}" ] || exec "$@"
  TIMEFORMAT="-- $name used %U + %S s of CPU time"
  time "$@"
}

# The lane of PACKAGE/BINARY. `scripts/test.sh` says what each of them is for. A name that is not here, such as that of a new
# test, waits: that is right for it, if not quickest.
lane_of() {
  case $1 in
    # They measure, and what else runs on the machine is in their figures: CPU time of the whole machine, goodput of
    # servers at several times their capacity, and who gets how much of it.
    highwater-cli/bench | highwater-cli/guard | highwater/admission | highwater/concurrency | highwater/fair | highwater/fair_accepting) echo alone ;;

    # No server of theirs runs in real time: parsers, protocols, models, simulations, text, and what compiles.
    highwater-core/* | highwater-journal/* | highwater-ui/* | highwater-batcher/simulation) echo computing ;;
    highwater/inbox_model | highwater/cache_model | highwater-cli/book | highwater-cli/look) echo computing ;;
    highwater-tests/conformance_core | highwater-tests/conformance_sim | highwater-tests/layering | highwater-tests/tidy) echo computing ;;
    highwater-instructions/instructions) echo computing ;;
    # It has one, but every timeout of that is ten minutes.
    highwater-tests/conformance_drivers) echo computing ;;
    # The kernel's queues and timers, in unit tests, too.
    highwater-sys/highwater_sys) echo waiting ;;
    # Unit tests of libraries.
    "${1%/*}/$(tr - _ <<<"${1%/*}")" | highwater-cli/highwater) echo computing ;;
    # Doc tests: cargo runs them in this lane only.
    */rust_out) echo computing ;;

    *) echo waiting ;;
  esac
}

# A test binary runs as many tests at once as there are cores. Those of the robustness tests mostly wait for deadlines: three
# times as many at once keep two cores three fifths busy.
threads_of() {
  case $1 in
    highwater-tests/robustness) echo $((3 * $(nproc))) ;;
    # They wait for brokers that start, and for sessions that end.
    highwater-batcher/kafka | highwater-ingest/kafka) echo $((2 * $(nproc))) ;;
    # A crowd and a server that computes keep two cores busy.
    highwater/fair_accepting) echo 1 ;;
  esac
}

main "$@"
