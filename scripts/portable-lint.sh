#!/usr/bin/env bash
# The linter, in the place of the compiler, for crates of this workspace only: what they are where only Linux has what is left
# out. As RUSTFLAGS, the same flag would build all their dependencies again.
#
#   RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/portable-lint.sh cargo check -p highwater --lib
#
# Cargo gives the compiler and its arguments. It also asks by it which dependencies there are without what only Linux has.
set -euo pipefail
exec "$("$1" --print sysroot)/bin/clippy-driver" "$@" --cfg highwater_portable_only --deny warnings
