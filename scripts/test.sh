#!/usr/bin/env bash
# All the tests, cheapest first, so that what is likeliest to be wrong says so soonest. Stops at the first step that fails.
# Ends with one line: how many tests passed, failed and were ignored.
#
#   SIM_SEEDS=500   how many seeds the simulator runs
set -euo pipefail
cd "$(dirname "$0")/.."

# Enough to visit every mishap many times, in seconds; `make sim` runs more.
seeds=${SIM_SEEDS:-500}
log=${CARGO_TARGET_DIR:-target}/test.log
# They take about ten; a hung one shall not hang whoever waits.
minutes=45
group=
starts_postgres=

main() {
  step "what the tests need" scripts/test-deps.sh
  # The tests share a Postgres, which the first of them starts and none can stop. Whoever had it before keeps it.
  is_postgres_here || starts_postgres=true
  step "format" cargo fmt --all --check
  step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
  step "tests and doc tests" run_tests
  step "the rules of measuring" env PYTHONDONTWRITEBYTECODE=1 python3 bench/test_run.py
  step "what the overload experiments conclude" env PYTHONDONTWRITEBYTECODE=1 python3 bench/overload/test_overload.py
  step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
  step "simulation, $seeds seeds" cargo run --quiet --profile fast --locked -p highwater-cli -- sim --seeds "$seeds"
  echo
  totals
}

step() {
  local name=$1 began=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@" || { printf '\ntest.sh: failed at: %s\n' "$name" >&2; totals >&2; exit 1; }
  printf '   %s s\n' "$((SECONDS - began))"
}

is_postgres_here() {
  (exec 3<>"/dev/tcp/127.0.0.1/${HW_PG_PORT:-25432}") 2>/dev/null
}

# Every test binary runs even if one fails: a list of failures is worth more than the first of them. They write to a file that
# is shown meanwhile: a process that outlives its test would hold a pipe open, and whoever reads our output would wait for it.
run_tests() {
  mkdir -p "$(dirname "$log")"
  : >"$log"
  local status=0 left
  # Has a process group of its own.
  timeout --kill-after=10s "${minutes}m" cargo test --workspace --locked --no-fail-fast >"$log" 2>&1 </dev/null &
  group=$!
  tail --pid="$group" --lines=+1 --follow --sleep-interval=0.2 "$log"
  wait "$group" || status=$?
  [ "$status" != 124 ] || echo "test.sh: the tests were ended after $minutes minutes" >&2
  # What watches over a test's process ends a moment after it.
  for _ in {1..20}; do
    left=$(pgrep --pgroup "$group" --list-full) || break
    sleep 0.1
  done
  if [ -n "$left" ]; then
    printf 'test.sh: the tests left processes behind:\n%s\n' "$left" >&2
    status=1
  fi
  end_tests
  return "$status"
}

# Whatever still runs of the tests is ended with them.
end_tests() {
  [ -z "$group" ] || pkill -KILL --pgroup "$group" || true
  group=
}

clean_up() {
  end_tests
  # No test may have needed it.
  [ -z "$starts_postgres" ] || scripts/services/postgres.sh stop >/dev/null 2>&1 || true
}

# The sum of cargo's "test result" lines, one per test binary.
totals() {
  [ -f "$log" ] || return 0
  awk -v seconds="$SECONDS" '
    /^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END { printf "%d passed, %d failed, %d ignored in %d s\n", passed, failed, ignored, seconds }' "$log"
}

trap clean_up EXIT
trap 'exit 130' INT TERM
rm -f "$log"
main "$@"
