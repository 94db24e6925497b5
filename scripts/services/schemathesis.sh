#!/usr/bin/env bash
# schemathesis.sh URL [ARGUMENT...]: calls an interface as its OpenAPI document says, with values that nobody thought of, and
# fails if an answer is not one that the document has.
#
# URL is that of the document: http://127.0.0.1:8080/openapi.json. Further arguments go to `schemathesis run`, such as
# `--header 'Authorization: Bearer …'`.
#
# It is installed from PyPI into the target folder, in the version below. Without a network it says so, and exits 75.
#
#   schemathesis.sh --install   only installs it
#
# Settings: HW_EXAMPLES (20, for each operation), CARGO_TARGET_DIR (target).
set -euo pipefail

readonly version=4.32.5

fail() {
  echo "schemathesis.sh: $1" >&2
  exit "${2:-1}"
}

main() {
  [ $# -ge 1 ] || fail "usage: schemathesis.sh URL [ARGUMENT...], or --install"
  local url=$1 root home
  shift
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
  home=${CARGO_TARGET_DIR:-$root/target}/tools/schemathesis-$version
  mkdir -p "$(dirname "$home")"
  [ -x "$home/bin/schemathesis" ] || install "$home"
  [ "$url" != --install ] || return 0
  # What a positive value is, no document says in full: an id of the right form may be unknown. So that an answer is 2xx is
  # not checked, but everything about it is.
  PYTHONPATH=$home "$home/bin/schemathesis" --config-file "$root/scripts/services/schemathesis.toml" run "$url" --max-examples "${HW_EXAMPLES:-20}" --workers 1 --seed 1 \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance \
    "$@"
}

# Two tests may install it at the same time: what is there is whole.
install() {
  local new
  new=$(mktemp -d "$(dirname "$1").XXXXXX") || fail "there is no folder for it beside $1"
  if pip3 install --quiet --disable-pip-version-check --target "$new" "schemathesis==$version"; then
    mv -T "$new" "$1" 2>/dev/null || rm -rf "$new"
  else
    rm -rf "$new"
    fail "PyPI cannot be reached" 75
  fi
}

main "$@"
