#!/usr/bin/env bash
# The compiler for the crates of this workspace when `scripts/test.sh` builds the tests: the linter compiles what it has looked
# at, and the documentation of libraries and programs is checked beside it. So their dependencies are built once, and not also
# checked for the linter, and each crate of ours is understood once.
#
#   RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/compile.sh cargo test --workspace --no-run
#
# Cargo gives the compiler and its arguments.
set -euo pipefail

main() {
  local tools
  tools=$("$1" --print sysroot)/bin
  "$tools/clippy-driver" "$@" --deny warnings
  shift
  ! is_documented "$@" || document "$tools/rustdoc" "$@"
}

# Neither tests nor examples are, as with `cargo doc`; nor are build scripts.
is_documented() {
  local kind=
  while [ $# -gt 0 ]; do
    case $1 in
      --test | */examples/* | build_script_*) return 1 ;;
      --crate-type) kind=$2 ;;
    esac
    shift
  done
  [ "$kind" = lib ] || [ "$kind" = bin ]
}

# Libraries and programs of one name would have one folder.
document() {
  local tool=$1 kind= folder= arguments=()
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --emit=* | --json=* | --error-format=*) ;;
      --out-dir) folder=$2/../doc && shift ;;
      --crate-type) kind=$2 && arguments+=("$1" "$2") && shift ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  "$tool" "${arguments[@]}" --out-dir "$folder/$kind" --deny warnings
}

main "$@"
