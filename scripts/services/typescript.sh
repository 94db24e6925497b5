#!/usr/bin/env bash
# typescript.sh URL PROGRAM [ARGUMENT...]: makes a TypeScript client of an interface, as its OpenAPI document describes it, compiles
# a program that uses it with `tsc --strict`, and runs that with node.
#
# URL is that of the document: http://127.0.0.1:8080/openapi.json. PROGRAM is a .ts file, which imports its types from
# `./schema.js`; it gets the server's address (http://127.0.0.1:8080) and the further arguments.
#
# The packages are installed from npm into the target folder, in the versions of tests/typescript/package-lock.json. Without a
# network, or without npm, it says so and exits 75.
#
#   typescript.sh --install   only installs them
#
# Settings: CARGO_TARGET_DIR (target).
set -euo pipefail

fail() {
  echo "typescript.sh: $1" >&2
  exit "${2:-1}"
}

main() {
  [ "${1:-}" = --install ] || [ $# -ge 2 ] || fail "usage: typescript.sh URL PROGRAM [ARGUMENT...], or --install"
  local root home
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
  packages=$root/tests/typescript
  home=${CARGO_TARGET_DIR:-$root/target}/tools/typescript-$(cksum <"$packages/package-lock.json" | cut -d ' ' -f 1)
  mkdir -p "$(dirname "$home")"
  [ -d "$home/node_modules" ] || install "$packages" "$home"
  [ "$1" != --install ] || return 0
  run "$home" "$@"
}

# Two tests may install them at the same time: what is there is whole.
install() {
  command -v npm >/dev/null && command -v node >/dev/null || fail "there is no npm here" 75
  local new
  new=$(mktemp -d "$2.XXXXXX") || fail "there is no folder for them beside $2"
  cp "$1/package.json" "$1/package-lock.json" "$new"
  if npm ci --prefix "$new" --ignore-scripts --no-audit --no-fund --loglevel=error >&2; then
    mv -T "$new" "$2" 2>/dev/null || rm -rf "$new"
  else
    rm -rf "$new"
    fail "npm's registry cannot be reached" 75
  fi
}

# In a folder of its own, since tests run at the same time; within the packages' one, where node finds them.
run() {
  local home=$1 url=$2 program=$3
  shift 3
  work=$(mktemp -d "$home/run.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cp "$program" "$work/main.ts"
  cp "$packages/tsconfig.json" "$work"
  cd "$work"
  "$home/node_modules/.bin/openapi-typescript" "$url" --output schema.ts >&2
  "$home/node_modules/.bin/tsc" --project .
  node main.js "${url%/*}" "$@"
}

main "$@"
