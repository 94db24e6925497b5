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

main() {
  step "what the tests need" scripts/test-deps.sh
  # The tests share a Postgres, which the first of them starts and none can stop. Whoever had it before keeps it.
  is_postgres_here || trap stop_postgres EXIT
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

stop_postgres() {
  # No test may have needed it.
  scripts/services/postgres.sh stop >/dev/null 2>&1 || true
}

# Every test binary runs even if one fails: a list of failures is worth more than the first of them.
run_tests() {
  mkdir -p "$(dirname "$log")"
  cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log"
}

# The sum of cargo's "test result" lines, one per test binary.
totals() {
  [ -f "$log" ] || return 0
  awk -v seconds="$SECONDS" '
    /^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END { printf "%d passed, %d failed, %d ignored in %d s\n", passed, failed, ignored, seconds }' "$log"
}

rm -f "$log"
main "$@"
