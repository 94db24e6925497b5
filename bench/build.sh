#!/usr/bin/env bash
# Builds Highwater, the floor and the peers into bench/bin, one after the other.
#
#   bench/build.sh                      everything that is missing or older than its sources
#   bench/build.sh floor axum           only these
#   NEEDED=1 bench/build.sh             stop if a toolchain is missing
#   LOCK=/tmp/cpu.lock bench/build.sh   each build under a shared flock, to stay out of measurements under an exclusive one
#
# A peer whose toolchain is missing is skipped, loudly: its program is then a script that says so, and its rows are void
# with that reason. ntex needs a newer compiler than the project's: NTEX_TOOLCHAIN (+nightly).
# Every binary here is built with PEER_RUSTFLAGS (-C target-cpu=native): peers get the best code for this CPU.
set -euo pipefail
cd "$(dirname "$0")"
bench=$PWD

flags=${PEER_RUSTFLAGS--C target-cpu=native}
usual=(highwater floor axum axum-web h2o uws ntex may nginx web wrk actix xitca-epoll go-nethttp go-fasthttp go-fiber netty)
all=("${usual[@]}" batcher ntex-tokio wrk2 gin-todos autocannon)
skipped=()

main() {
  mkdir -p bin
  local name
  [ $# -gt 0 ] || set -- "${usual[@]}"
  for name in "$@"; do
    case $name in
      highwater)   build_highwater ;;
      batcher)     build_batcher ;;
      floor)       cargo_build floor "" floor,floor-tls,split ;;
      axum)        cargo_build peers/axum "" peer-axum=axum ;;
      axum-web)    cargo_build peers/axum "" peer-axum=axum-web --features web ;;
      h2o)         build_h2o ;;
      uws)         build_uws ;;
      may)         cargo_build peers/may "" peer-may=may ;;
      actix)       cargo_build peers/actix "" peer-actix=actix ;;
      xitca-epoll) cargo_build peers/xitca "" peer-xitca=xitca-epoll ;;
      ntex)        build_ntex ntex ;;
      ntex-tokio)  build_ntex ntex-tokio --no-default-features --features tokio ;;
      go-*)        build_go "$name" peers/go "./${name#go-}" ;;
      gin-todos)   build_go gin-todos peers/gin-todos . ;;
      netty)       build_netty ;;
      web)         make_web_files ;;
      nginx)       apt_install nginx nginx-light ;;
      wrk)         apt_install wrk wrk ;;
      wrk2)        build_wrk2 ;;
      autocannon)  build_autocannon ;;
      *)           echo "build.sh: unknown name '$name'; one of: ${all[*]}" >&2; exit 2 ;;
    esac
  done
  [ ${#skipped[@]} = 0 ] || printf '\nbuild.sh: SKIPPED, and void in every plan: %s\n' "${skipped[*]}" >&2
  [ ${#skipped[@]} = 0 ] || [ -z "${NEEDED-}" ]
}

# skip NAME REASON: what a plan starts under that name says the reason.
skip() {
  printf 'SKIPPED:    %s: %s\n' "$1" "$2" >&2
  printf '#!/bin/sh\necho "%s is not built: %s" >&2\nexit 1\n' "$1" "$2" > "bin/$1"
  chmod +x "bin/$1"
  skipped+=("$1")
}

build_ntex() {
  local name=$1 toolchain=${NTEX_TOOLCHAIN-+nightly}; shift
  if ! cargo $toolchain --version > /dev/null 2>&1; then
    skip "$name" "cargo $toolchain is missing; rustup toolchain install ${toolchain#+}"
    return
  fi
  cargo_build peers/ntex "$toolchain" "peer-ntex=$name" "$@"
}

# Go's build cache decides what is up to date. GOAMD64=v3 is what target-cpu=native is for Rust: every CPU since 2015.
# build_go NAME MODULE PACKAGE
build_go() {
  if [ ! -d "$2/$3" ]; then
    echo "build.sh: unknown name '$1'; one of: ${all[*]}" >&2
    exit 2
  fi
  if ! command -v go > /dev/null; then
    skip "$1" "go is missing; https://go.dev/dl has it"
    return
  fi
  echo "building:   $1"
  (cd "$2" && ${LOCK:+flock -s "$LOCK"} env CGO_ENABLED=0 GOAMD64="${GOAMD64-v3}" \
    go build -trimpath -mod=readonly -o "$bench/bin/$1" "$3")
}

build_netty() {
  if ! { command -v javac && command -v mvn; } > /dev/null; then
    skip netty "a JDK or mvn is missing; apt-get install openjdk-17-jdk-headless maven"
    return
  fi
  if up_to_date peers/netty netty; then
    echo "up to date: netty"
    return
  fi
  echo "building:   netty"
  (cd peers/netty && ${LOCK:+flock -s "$LOCK"} mvn --quiet --batch-mode package &&
    ${LOCK:+flock -s "$LOCK"} javac --release 17 -d target/classes -cp 'target/lib/*' src/*.java)
  install peers/netty/run.sh bin/netty
}

# Highwater under the same flags, in a folder of its own so that cargo does not rebuild target/ for them. Its inputs are
# the whole workspace, so cargo decides whether it is up to date.
build_highwater() {
  echo "building:   highwater-arena"
  (cd .. && RUSTFLAGS=$flags CARGO_TARGET_DIR=$bench/target \
    ${LOCK:+flock -s "$LOCK"} cargo build --quiet --release --locked -p highwater-arena)
  install target/release/highwater-arena bin/highwater-arena
}

# The batcher's own bench, for bench/plans/batcher.toml. Cargo names it by a hash, so it says where it is.
build_batcher() {
  echo "building:   batcher"
  local built
  built=$(cd .. && cargo bench --quiet --locked -p highwater-batcher --bench throughput --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*throughput-[^"]*\)".*/\1/p' | tail -1)
  install "$built" bin/batcher
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

# What skip left is not built.
is_built() {
  [ -x "bin/$1" ] && ! grep --quiet --binary-files=without-match 'is not built: .* >&2$' "bin/$1"
}

up_to_date() {
  local dir=$1 binary; shift
  for binary in "$@"; do
    binary=bin/${binary#*=}
    is_built "${binary#bin/}" || return 1
    [ -z "$(find "$dir" peers/common -name target -prune -o -type f -newer "$binary" -print -quit)" ] || return 1
  done
}

# A server on Debian's libh2o: version 2.2, the last that was released.
build_h2o() {
  if up_to_date peers/h2o h2o; then
    echo "up to date: h2o"
    return
  fi
  [ -e /usr/include/h2o.h ] || apt_install no-command-has-it libh2o-evloop-dev
  [ -e /usr/include/openssl/ssl.h ] || apt_install no-command-has-it libssl-dev
  echo "building:   h2o"
  ${LOCK:+flock -s "$LOCK"} cc ${PEER_CFLAGS--O3 -march=native} -flto -DH2O_USE_LIBUV=0 -o bin/h2o peers/h2o/server.c \
    -lh2o-evloop -lssl -lcrypto
}

# uWebSockets is headers beside uSockets, from UWS_SOURCE and USOCKETS_SOURCE; no package has them.
build_uws() {
  local commit=66dcff3dd48f0c19dd1703426365d062039321d0 sockets=86097c490263ab662d62e8e7b541390bdec7d149
  local dir=target/uws flags=${PEER_CFLAGS--O3 -march=native}
  if up_to_date peers/uws uws; then
    echo "up to date: uws"
    return
  fi
  [ -e /usr/include/openssl/ssl.h ] || apt_install no-command-has-it libssl-dev
  echo "building:   uws"
  rm -rf "$dir"
  if ! git clone --quiet "${UWS_SOURCE:-https://github.com/uNetworking/uWebSockets}" "$dir" ||
    ! git clone --quiet "${USOCKETS_SOURCE:-https://github.com/uNetworking/uSockets}" "$dir/uSockets"; then
    skip uws "its source cannot be had; set UWS_SOURCE and USOCKETS_SOURCE to copies"
    return
  fi
  git -C "$dir" checkout --quiet "$commit"
  git -C "$dir/uSockets" checkout --quiet "$sockets"
  local us=$dir/uSockets/src
  # Its warnings are about functions that OpenSSL 3 discourages.
  (cd "$us" && ${LOCK:+flock -s "$LOCK"} cc $flags -flto -w -std=c11 -DLIBUS_USE_OPENSSL -I. -c \
    ./*.c eventing/epoll_kqueue.c crypto/openssl.c)
  (cd "$us" && ${LOCK:+flock -s "$LOCK"} c++ $flags -flto -std=c++20 -DLIBUS_USE_OPENSSL -I. -c crypto/sni_tree.cpp)
  ${LOCK:+flock -s "$LOCK"} c++ $flags -flto=auto -std=c++20 -DLIBUS_USE_OPENSSL -DUWS_NO_ZLIB -I"$dir/src" -I"$us" \
    -o bin/uws peers/uws/server.cpp "$us"/*.o -lssl -lcrypto
}

# What servers of the plan web read: files of 4 KiB and 1 MiB, and for nginx, which serializes nothing, the answers of the others.
make_web_files() {
  echo "making:     web"
  mkdir -p bin/web
  local line='The quick brown fox jumps over the lazy dog, who reads the file.'
  # `yes` ends by a broken pipe.
  (set +o pipefail; yes "$line" | tr -d '\n' | head -c 4096 > bin/web/4k.txt)
  (set +o pipefail; yes "$line" | tr -d '\n' | head -c 1048576 > bin/web/1m.txt)
  printf 'Hello, World!' > bin/web/hello.txt
  awk 'BEGIN {
    for (id = 0; id < 100; id++)
      printf "%s{\"id\":%d,\"title\":\"Record %d of the list that is answered\",\"price\":%d.5,\"available\":%s}",
        id ? "," : "[", id, id, id, id % 3 ? "true" : "false"
    printf "]" }' > bin/web/list.json
}

# The one commit of wrk2 that there has been since 2019, from WRK2_SOURCE. No package has it.
build_wrk2() {
  local commit=44a94c17d8e6a0bac8559b53da76848e430cb7a7 dir=target/wrk2
  if is_built wrk2; then
    echo "up to date: wrk2"
    return
  fi
  echo "building:   wrk2"
  [ -e /usr/include/openssl/ssl.h ] || apt_install no-command-has-it libssl-dev
  [ -e /usr/include/zlib.h ] || apt_install no-command-has-it zlib1g-dev
  rm -rf "$dir"
  if ! git clone --quiet "${WRK2_SOURCE:-https://github.com/giltene/wrk2}" "$dir"; then
    skip wrk2 "its source cannot be had; set WRK2_SOURCE to a copy"
    return
  fi
  git -C "$dir" checkout --quiet "$commit"
  ${LOCK:+flock -s "$LOCK"} make -C "$dir" > "$dir.log" 2>&1 || { tail -n 20 "$dir.log" >&2; return 1; }
  install "$dir/wrk" bin/wrk2
}

# With which such APIs are advertised; from the npm registry, into target/tools.
build_autocannon() {
  if is_built autocannon; then
    echo "up to date: autocannon"
    return
  fi
  if ! command -v npm > /dev/null; then
    skip autocannon "npm is missing; apt-get install npm"
    return
  fi
  echo "building:   autocannon"
  if ! npm install --silent --no-audit --no-fund --prefix ../target/tools autocannon@8 > /dev/null; then
    skip autocannon "npm could not install it; is there a network?"
    return
  fi
  printf '#!/bin/sh\nexec "$(dirname "$0")/../../target/tools/node_modules/.bin/autocannon" "$@"\n' > bin/autocannon
  chmod +x bin/autocannon
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
