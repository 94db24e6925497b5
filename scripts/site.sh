#!/usr/bin/env bash
# Builds README, docs and the book as one site into target/site/html, with search. Installs mdBook into target/tools if it
# is not there, which takes a minute or two once. The site loads nothing from elsewhere, and can be read from the disk.
#
#   scripts/site.sh             build the site
#   scripts/site.sh --install   only install mdBook, for the tests
set -euo pipefail
cd "$(dirname "$0")/.."

# A site is made by one version; another one may lay pages out differently.
readonly version=0.5.4

main() {
  local target=${CARGO_TARGET_DIR:-target} mdbook
  mdbook=$target/tools/bin/mdbook
  [ "$("$mdbook" --version 2>/dev/null)" = "mdbook v$version" ] ||
    cargo install --quiet --debug --locked "mdbook@$version" --no-default-features --features search --root "$target/tools"
  [ "${1:-}" != --install ] || return 0
  cargo run --quiet --locked -p highwater-tests --bin site -- "$mdbook" "$target/site"
  echo "$target/site/html/index.html"
}

main "$@"
