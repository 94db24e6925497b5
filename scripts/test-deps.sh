#!/usr/bin/env bash
# Installs the Debian packages that the tests need and this machine lacks, and the compiler's llvm-tools; usually there
# is nothing to do. Prints what it installs, and starts no service: the tests start their own, on their own ports and in
# their own folders.
#
#   scripts/test-deps.sh           install what is missing
#   scripts/test-deps.sh --check   only list what is missing; exit 1 if anything is
set -euo pipefail

# The program or file | its package | its users.
readonly needs='
cc                  build-essential  Rust links with it, and the embedded SQLite is C
c++                 build-essential  librdkafka is not configured without one
initdb              postgresql       the search service keeps its events in PostgreSQL if asked to
promtool            prometheus       the metrics, rules and dashboards must be what Prometheus accepts; one scrapes a server
python3             python3          what works on this machine is tried with it, and a server that the guard protects
ip                  iproute2         the gates are tested in network namespaces
nft                 nftables         one of those gates
iptables            iptables         another
nginx               nginx            a proxy in front of several instances; another server, for the guard to protect
haproxy             haproxy          another proxy
redis-server        redis-server     the Todo service shares its lists through it
docker-compose      docker-compose   reads the compose files
systemd-analyze     systemd          reads the unit files
pip3                python3-pip      brings the linter of the Dockerfile
pgrep               procps           finds processes that a test leaves behind
java                default-jre-headless  Kafka runs on it
mvn                 maven            gets Kafka, from Maven Central
chromium            chromium         the page on the metrics port is opened in a browser
valgrind            valgrind         counts the instructions of a request
curl                curl             another client, to query the services
node                nodejs           runs a client that is made of a document
npm                 npm              brings what makes and compiles it
'

main() {
  local missing
  [ "${1:-}" = --check ] || add_llvm_tools
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  if [ "${1:-}" = --check ]; then
    echo "missing: $missing"
    return 1
  fi
  command -v apt-get >/dev/null || fail "the tests need these Debian packages, and there is no apt-get here: $missing"
  local sudo=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "not root and no sudo; as root: apt-get install --no-install-recommends $missing"
    sudo=sudo
  fi
  echo "test-deps: installing $missing"
  # shellcheck disable=SC2086  # a list of names
  $sudo bash -c "$(declare -f install_quietly); install_quietly $missing"
  missing=$(missing_packages)
  [ -z "$missing" ] || fail "installed, but still not found: $missing"
}

missing_packages() {
  local command package found=()
  while read -r command package _; do
    [ -z "$command" ] || is_here "$command" || [[ " ${found[*]} " == *" $package "* ]] || found+=("$package")
  done <<<"$needs"
  echo "${found[*]}"
}

# Debian does not put PostgreSQL's programs into the path; any browser that scripts/services/chromium.sh knows will do.
is_here() {
  if [ "$1" = chromium ]; then
    "$(dirname "${BASH_SOURCE[0]}")/services/chromium.sh" path >/dev/null 2>&1
    return
  fi
  command -v "$1" >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null
}

# `highwater pgo` merges profiles with llvm-profdata, which is a component of the toolchain. Compilers that rustup does not
# manage, and machines without a network, skip its tests.
add_llvm_tools() {
  command -v rustup >/dev/null || return 0
  ! compgen -G "$(rustc --print sysroot)/lib/rustlib/*/bin/llvm-profdata" >/dev/null || return 0
  echo "test-deps: adding llvm-tools to the toolchain"
  rustup component add llvm-tools || echo "test-deps: without llvm-tools the tests of profiles are skipped" >&2
}

# Runs as root. A package with a service starts it on installation unless policy-rc.d forbids that; if there is no such
# file, this script creates one for the time of the installation.
install_quietly() {
  set -euo pipefail
  export DEBIAN_FRONTEND=noninteractive
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  local install=(apt-get install --yes --quiet --no-install-recommends "$@")
  # An old image's package lists may name removed versions, so a failure is retried with new lists.
  "${install[@]}" || { apt-get update --quiet && "${install[@]}"; }
}

fail() {
  echo "test-deps: $1" >&2
  exit 1
}

main "$@"
