#!/usr/bin/env bash
# Builds Highwater, the floor and the peers into bench/bin, one after the other.
#
#   bench/build.sh                      everything that is missing, older than its sources, or built otherwise than now
#   bench/build.sh floor axum           only these
#   NEEDED=1 bench/build.sh             stop if a toolchain is missing
#   LOCK=/tmp/cpu.lock bench/build.sh   each build under a shared flock, to stay out of measurements under an exclusive one
#
# A peer that cannot be built here, for want of a toolchain, a package or a network, is skipped, loudly: its program is then
# a script that says so, and its rows are void with that reason. ntex needs a newer compiler than the project's: NTEX_TOOLCHAIN (+nightly).
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
  local name status
  [ $# -gt 0 ] || set -- "${usual[@]}"
  for name in "$@"; do
    rm -f bin/.reason
    # As a condition it would go on after a command that fails.
    set +e
    (set -e; build "$name")
    status=$?
    set -e
    case $name:$status in
      *:0) ;;
      *:64) exit 2 ;;
      # They are ours: without them there is nothing to measure.
      highwater:* | batcher:*) exit 1 ;;
      floor:*)  skip floor; skip floor-tls; skip split ;;
      *)        skip "$name" ;;
    esac
  done
  [ ${#skipped[@]} = 0 ] || printf '\nbuild.sh: SKIPPED, and void in every plan: %s\n' "${skipped[*]}" >&2
  [ ${#skipped[@]} = 0 ] || [ -z "${NEEDED-}" ]
}

# build NAME: in a shell of its own, which ends if it cannot.
build() {
  case $1 in
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
    go-*)        build_go "$1" peers/go "./${1#go-}" ;;
    gin-todos)   build_go gin-todos peers/gin-todos . ;;
    netty)       build_netty ;;
    web)         make_web_files ;;
    nginx)       apt_install nginx nginx-light ;;
    wrk)         apt_install wrk wrk ;;
    wrk2)        build_wrk2 ;;
    autocannon)  build_autocannon ;;
    *)           unknown "$1" ;;
  esac
}

unknown() {
  echo "build.sh: unknown name '$1'; one of: ${all[*]}" >&2
  exit 64
}

# stop REASON: what is being built is skipped for that reason.
stop() {
  echo "$1" > bin/.reason
  exit 1
}

# need COMMAND REMEDY
need() {
  command -v "$1" > /dev/null || stop "$1 is missing; $2"
}

# skip NAME: what a plan starts under that name says the reason.
skip() {
  local reason="its build failed"
  [ ! -e bin/.reason ] || reason=$(cat bin/.reason)
  printf 'SKIPPED:    %s: %s\n' "$1" "$reason" >&2
  rm -rf "bin/${1:?}"
  printf '#!/bin/sh\necho "%s is not built: %s" >&2\nexit 1\n' "$1" "$reason" > "bin/$1"
  chmod +x "bin/$1"
  skipped+=("$1")
}

build_ntex() {
  local name=$1 toolchain=${NTEX_TOOLCHAIN-+nightly}; shift
  cargo $toolchain --version > /dev/null 2>&1 ||
    stop "cargo $toolchain is missing; rustup toolchain install ${toolchain#+}"
  cargo_build peers/ntex "$toolchain" "peer-ntex=$name" "$@"
}

# Go's build cache decides what is up to date. GOAMD64=v3 is what target-cpu=native is for Rust: every CPU since 2015.
# build_go NAME MODULE PACKAGE
build_go() {
  [ -d "$2/$3" ] || unknown "$1"
  need go "https://go.dev/dl has it"
  echo "building:   $1"
  (cd "$2" && ${LOCK:+flock -s "$LOCK"} env CGO_ENABLED=0 GOAMD64="${GOAMD64-v3}" \
    go build -trimpath -mod=readonly -o "$bench/bin/$1" "$3")
}

build_netty() {
  need javac "apt-get install openjdk-17-jdk-headless"
  need mvn "apt-get install maven"
  local stamp
  stamp=$(javac -version 2>&1)
  ! up_to_date netty peers/netty "$stamp" || return 0
  echo "building:   netty"
  (cd peers/netty && ${LOCK:+flock -s "$LOCK"} mvn --quiet --batch-mode package &&
    ${LOCK:+flock -s "$LOCK"} javac --release 17 -d target/classes -cp 'target/lib/*' src/*.java)
  install peers/netty/run.sh bin/netty
  note netty "$stamp"
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

# Cargo decides whether it is up to date: it knows the flags and the compiler.
# cargo_build DIR TOOLCHAIN BINARY[=NAME][,...] [CARGO ARGUMENTS]
cargo_build() {
  local dir=$1 toolchain=$2 binaries=${3//,/ } binary; shift 3
  need cargo "https://rustup.rs has it"
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

# Whether NAME was built from DIR as it is now, if it has one, and under STAMP: flags, compilers and commits.
# up_to_date NAME DIR STAMP
up_to_date() {
  is_built "$1" && [ "$(cat "bin/.$1.stamp" 2> /dev/null)" = "$3" ] || return 1
  [ -z "$2" ] || [ -z "$(find "$2" peers/common -name target -prune -o -type f -newer "bin/$1" -print -quit)" ] || return 1
  echo "up to date: $1"
}

# note NAME STAMP
note() {
  printf '%s\n' "$2" > "bin/.$1.stamp"
}

# version COMMAND
version() {
  "$1" --version | sed -n 1p
}

# A server on Debian's libh2o: version 2.2, the last that was released.
build_h2o() {
  need cc "apt-get install gcc"
  local flags=${PEER_CFLAGS--O3 -march=native} stamp
  [ -e /usr/include/h2o.h ] || apt_install no-command-has-it libh2o-evloop-dev
  [ -e /usr/include/openssl/ssl.h ] || apt_install no-command-has-it libssl-dev
  stamp="$flags; $(version cc); libh2o $(dpkg-query --show libh2o-evloop-dev 2> /dev/null || true)"
  ! up_to_date h2o peers/h2o "$stamp" || return 0
  echo "building:   h2o"
  ${LOCK:+flock -s "$LOCK"} cc $flags -flto -DH2O_USE_LIBUV=0 -o bin/h2o peers/h2o/server.c -lh2o-evloop -lssl -lcrypto
  note h2o "$stamp"
}

# uWebSockets is headers beside uSockets, from UWS_SOURCE and USOCKETS_SOURCE; no package has them.
build_uws() {
  local commit=66dcff3dd48f0c19dd1703426365d062039321d0 sockets=86097c490263ab662d62e8e7b541390bdec7d149
  local dir=target/uws flags=${PEER_CFLAGS--O3 -march=native} stamp
  need cc "apt-get install gcc"
  need c++ "apt-get install g++"
  need git "apt-get install git"
  stamp="$flags; $(version cc); $(version c++); $commit $sockets"
  ! up_to_date uws peers/uws "$stamp" || return 0
  [ -e /usr/include/openssl/ssl.h ] || apt_install no-command-has-it libssl-dev
  echo "building:   uws"
  rm -rf "$dir"
  { git clone --quiet "${UWS_SOURCE:-https://github.com/uNetworking/uWebSockets}" "$dir" &&
    git clone --quiet "${USOCKETS_SOURCE:-https://github.com/uNetworking/uSockets}" "$dir/uSockets"; } ||
    stop "its source cannot be had; set UWS_SOURCE and USOCKETS_SOURCE to copies"
  git -C "$dir" checkout --quiet "$commit"
  git -C "$dir/uSockets" checkout --quiet "$sockets"
  local us=$dir/uSockets/src
  # Its warnings are about functions that OpenSSL 3 discourages.
  (cd "$us" && ${LOCK:+flock -s "$LOCK"} cc $flags -flto -w -std=c11 -DLIBUS_USE_OPENSSL -I. -c \
    ./*.c eventing/epoll_kqueue.c crypto/openssl.c)
  (cd "$us" && ${LOCK:+flock -s "$LOCK"} c++ $flags -flto -std=c++20 -DLIBUS_USE_OPENSSL -I. -c crypto/sni_tree.cpp)
  ${LOCK:+flock -s "$LOCK"} c++ $flags -flto=auto -std=c++20 -DLIBUS_USE_OPENSSL -DUWS_NO_ZLIB -I"$dir/src" -I"$us" \
    -o bin/uws peers/uws/server.cpp "$us"/*.o -lssl -lcrypto
  note uws "$stamp"
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
  local commit=44a94c17d8e6a0bac8559b53da76848e430cb7a7 dir=target/wrk2 stamp
  need cc "apt-get install gcc"
  need make "apt-get install make"
  need git "apt-get install git"
  stamp="$(version cc); $commit"
  ! up_to_date wrk2 "" "$stamp" || return 0
  echo "building:   wrk2"
  [ -e /usr/include/openssl/ssl.h ] || apt_install no-command-has-it libssl-dev
  [ -e /usr/include/zlib.h ] || apt_install no-command-has-it zlib1g-dev
  rm -rf "$dir"
  git clone --quiet "${WRK2_SOURCE:-https://github.com/giltene/wrk2}" "$dir" ||
    stop "its source cannot be had; set WRK2_SOURCE to a copy"
  git -C "$dir" checkout --quiet "$commit"
  ${LOCK:+flock -s "$LOCK"} make -C "$dir" > "$dir.log" 2>&1 || { tail -n 20 "$dir.log" >&2; exit 1; }
  install "$dir/wrk" bin/wrk2
  note wrk2 "$stamp"
}

# With which such APIs are advertised; from the npm registry, into target/tools.
build_autocannon() {
  local package=autocannon@8
  need npm "apt-get install npm"
  ! up_to_date autocannon "" "$package" || return 0
  echo "building:   autocannon"
  npm install --silent --no-audit --no-fund --prefix ../target/tools "$package" > /dev/null ||
    stop "npm could not install it; is there a network?"
  printf '#!/bin/sh\nexec "$(dirname "$0")/../../target/tools/node_modules/.bin/autocannon" "$@"\n' > bin/autocannon
  chmod +x bin/autocannon
  note autocannon "$package"
}

# apt_install COMMAND PACKAGE
apt_install() {
  if PATH=$PATH:/usr/sbin command -v "$1" > /dev/null; then
    echo "installed:  $1"
    return
  fi
  local sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  command -v apt-get > /dev/null && { [ -z "$sudo" ] || command -v sudo > /dev/null; } ||
    stop "the package $2 of Debian is missing, and apt-get, or sudo for it; install it"
  $sudo apt-get install --yes --quiet "$2" ||
    { $sudo apt-get update --quiet && $sudo apt-get install --yes --quiet "$2"; } ||
    stop "apt-get could not install $2; is there a network?"
}

main "$@"
