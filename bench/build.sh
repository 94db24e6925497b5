#!/usr/bin/env bash
# Builds Highwater, the floor and the peers into bench/bin, one after the other.
#
#   bench/build.sh                      everything that is missing or older than its sources
#   bench/build.sh floor axum           only these
#   LOCK=/tmp/cpu.lock bench/build.sh   each build under a shared flock, to stay out of measurements under an exclusive one
#
# ntex needs a newer compiler than the project's: NTEX_TOOLCHAIN (+nightly).
# Every binary here is built with PEER_RUSTFLAGS (-C target-cpu=native): peers get the best code for this CPU.
set -euo pipefail
cd "$(dirname "$0")"
bench=$PWD

flags=${PEER_RUSTFLAGS--C target-cpu=native}
all=(highwater floor axum ntex may nginx wrk wrk2 actix xitca-epoll ntex-tokio)
usual=(highwater floor axum ntex may nginx wrk actix xitca-epoll)

main() {
  mkdir -p bin
  local name
  [ $# -gt 0 ] || set -- "${usual[@]}"
  for name in "$@"; do
    case $name in
      highwater)   build_highwater ;;
      floor)       cargo_build floor "" floor ;;
      axum)        cargo_build peers/axum "" peer-axum=axum ;;
      may)         cargo_build peers/may "" peer-may=may ;;
      actix)       cargo_build peers/actix "" peer-actix=actix ;;
      xitca-epoll) cargo_build peers/xitca "" peer-xitca=xitca-epoll ;;
      ntex)        cargo_build peers/ntex "${NTEX_TOOLCHAIN-+nightly}" peer-ntex=ntex ;;
      ntex-tokio)  cargo_build peers/ntex "${NTEX_TOOLCHAIN-+nightly}" peer-ntex=ntex-tokio --no-default-features --features tokio ;;
      nginx)       apt_install nginx nginx-light ;;
      wrk)         apt_install wrk wrk ;;
      wrk2)        build_wrk2 ;;
      *)           echo "build.sh: unknown name '$name'; one of: ${all[*]}" >&2; exit 2 ;;
    esac
  done
}

# Highwater under the same flags, in a folder of its own so that cargo does not rebuild target/ for them. Its inputs are
# the whole workspace, so cargo decides whether it is up to date.
build_highwater() {
  echo "building:   highwater-arena"
  (cd .. && RUSTFLAGS=$flags CARGO_TARGET_DIR=$bench/target \
    ${LOCK:+flock -s "$LOCK"} cargo build --quiet --release --locked -p highwater-arena)
  install target/release/highwater-arena bin/highwater-arena
}

# cargo_build DIR TOOLCHAIN BINARY[=NAME][,...] [CARGO ARGUMENTS]
cargo_build() {
  local dir=$1 toolchain=$2 binaries=${3//,/ } binary; shift 3
  if up_to_date "$dir" $binaries; then
    echo "up to date: ${binaries//peer-*=/}"
    return
  fi
  echo "building:   ${binaries//peer-*=/}"
  local target=$bench/${dir%%/*}/target
  (cd "$dir" && RUSTFLAGS=$flags CARGO_TARGET_DIR=$target \
    ${LOCK:+flock -s "$LOCK"} cargo $toolchain build --quiet --release --locked "$@")
  for binary in $binaries; do
    install "$target/release/${binary%=*}" "bin/${binary#*=}"
  done
}

up_to_date() {
  local dir=$1 binary; shift
  for binary in "$@"; do
    binary=bin/${binary#*=}
    [ -x "$binary" ] || return 1
    [ -z "$(find "$dir" peers/common -name target -prune -o -type f -newer "$binary" -print -quit)" ] || return 1
  done
}

# The one commit of wrk2 that there has been since 2019, from WRK2_SOURCE. No package has it.
build_wrk2() {
  local commit=44a94c17d8e6a0bac8559b53da76848e430cb7a7 dir=target/wrk2
  if [ -x bin/wrk2 ]; then
    echo "up to date: wrk2"
    return
  fi
  echo "building:   wrk2"
  [ -e /usr/include/openssl/ssl.h ] || apt_install no-command-has-it libssl-dev
  [ -e /usr/include/zlib.h ] || apt_install no-command-has-it zlib1g-dev
  rm -rf "$dir"
  git clone --quiet "${WRK2_SOURCE:-https://github.com/giltene/wrk2}" "$dir"
  git -C "$dir" checkout --quiet "$commit"
  ${LOCK:+flock -s "$LOCK"} make -C "$dir" > "$dir.log" 2>&1 || { tail -n 20 "$dir.log" >&2; return 1; }
  install "$dir/wrk" bin/wrk2
}

# apt_install COMMAND PACKAGE
apt_install() {
  if PATH=$PATH:/usr/sbin command -v "$1" > /dev/null; then
    echo "installed:  $1"
    return
  fi
  local sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get install --yes --quiet "$2" || { $sudo apt-get update --quiet; $sudo apt-get install --yes --quiet "$2"; }
}

main "$@"
