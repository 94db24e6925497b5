#!/usr/bin/env bash
# Reverts one fix after the other, and reports the seed of the simulator that detects it.
# Each patch of scripts/mutations/ is applied to a copy of the committed tree. Its first lines, which
# `git apply` skips, say what it reverts, and which kinds are needed besides the default ones:
#
#   What: a late answer of the pool is given to the next request
#   With: wakes,stops
#
# A patch with the line `Simulation: journal` or `Simulation: todos` is for the simulation of that package
# (highwater-journal, highwater-todos), which runs as a test of it.
#
#   scripts/sim-mutations.sh [SEEDS] [NAME...]    10000 seeds, all patches
#
# Fails if a patch does not apply or build any more, or no seed finds it. `make test` checks that all apply. Write them
# with little context (`git diff -U1`) and without comments in it, so that few unrelated changes break them.
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=${1:-10000}
shift || true
repository=$PWD
# The build folder is kept, so that each patch rebuilds one crate, not all.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$repository/target/mutations}
copy=$(mktemp -d -t highwater-mutations.XXXXXX)
trap 'git worktree remove --force "$copy/tree" 2>/dev/null || true; rm -rf "$copy"' EXIT
git worktree add --quiet --detach "$copy/tree" HEAD

failed=0
# report NAME PATCH SEED: which seed found it, or that none did.
report() {
  if [ -n "$3" ]; then
    echo "$1 ($(header What "$2")): $3"
  else
    echo "$1 ($(header What "$2")): NOT FOUND by $seeds seeds" >&2
    failed=1
  fi
}
header() { sed -n "s/^$1: //p;/^diff /q" "$2"; }
for patch in "$repository"/scripts/mutations/*.patch; do
  name=$(basename "$patch" .patch)
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  git -C "$copy/tree" checkout --quiet --force HEAD -- .
  if ! git -C "$copy/tree" apply "$patch"; then
    echo "$name: the patch does not apply: rewrite it for the code as it is now" >&2
    failed=1
    continue
  fi
  if simulation=$(header Simulation "$patch") && [ -n "$simulation" ]; then
    if ! (cd "$copy/tree" && cargo test --quiet --profile fast --locked --no-run -p "highwater-$simulation" --lib); then
      echo "$name: does not build with the patch: rewrite it for the code as it is now" >&2
      failed=1
      continue
    fi
    found=$(cd "$copy/tree" && env "${simulation^^}_SEEDS=$seeds" RUST_BACKTRACE=0 cargo test --quiet --profile fast --locked \
      -p "highwater-$simulation" --lib -- --nocapture simulation::seeds 2>&1 || true)
    report "$name" "$patch" "$(sed -n 's/^\(seed [0-9]* failed\).*/\1/p' <<<"$found" | head -n 1)"
    continue
  fi
  if ! (cd "$copy/tree" && cargo build --quiet --profile fast --locked -p highwater-cli); then
    echo "$name: does not build with the patch: rewrite it for the code as it is now" >&2
    failed=1
    continue
  fi
  with=$(header With "$patch")
  # The command fails when a seed fails, as intended here.
  found=$("$CARGO_TARGET_DIR/fast/highwater" sim --seeds "$seeds" ${with:+--with "$with"} 2>/dev/null || true)
  report "$name" "$patch" "$(sed -n 's/^  \(seed .*\)/\1/p' <<<"$found" | head -n 1)"
done
exit $failed
