#!/usr/bin/env bash
# Builds README, docs and the book as one site into target/site/html, with search. Installs mdBook into target/tools if it
# is missing, which takes a few minutes once. The site loads nothing from other hosts, and can be read from the disk.
set -euo pipefail
cd "$(dirname "$0")/.."

# The version is fixed: another one may lay pages out differently.
readonly version=0.5.4

main() {
  local target=${CARGO_TARGET_DIR:-target} mdbook
  mdbook=$target/tools/bin/mdbook
  [ "$("$mdbook" --version 2>/dev/null)" = "mdbook v$version" ] ||
    cargo install --locked "mdbook@$version" --no-default-features --features search --root "$target/tools"
  cargo run --quiet --locked -p highwater-tests --bin site -- "$mdbook" "$target/site"
  echo "$target/site/html/index.html"
}

main "$@"
