#!/usr/bin/env bash
# Fuzzes every target of fuzz/ for SECONDS each, and fails if one of them finds anything.
# Installs the nightly compiler and cargo-fuzz where they are missing.
#
#   scripts/fuzz.sh [SECONDS] [TARGET...]    60 seconds, all targets
set -euo pipefail
cd "$(dirname "$0")/.."

nightly=${NIGHTLY:-nightly}
seconds=${1:-60}
shift || true
[[ $seconds =~ ^[0-9]+$ ]] || {
  echo "fuzz.sh: $seconds is not a number of seconds; write scripts/fuzz.sh [SECONDS] [TARGET...]" >&2
  exit 2
}

rustup toolchain list | grep -q "^$nightly" || rustup toolchain install "$nightly" --profile minimal
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

# The targets from the command line, or all that cargo-fuzz lists.
read -r -d '' -a targets < <([ $# -gt 0 ] && printf '%s\n' "$@" || cargo "+$nightly" fuzz list) || true
[ "${#targets[@]}" -gt 0 ] || { echo "fuzz.sh: fuzz/Cargo.toml names no target" >&2; exit 1; }
for target in "${targets[@]}"; do
  echo "== $target, $seconds s"
  cargo "+$nightly" fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10
done
