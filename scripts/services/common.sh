# Functions that the scripts of this folder share and source. Each sets `port`, `dir` (its files) and `url` itself, and
# has a `running` that prints the id of its process.
# shellcheck shell=bash disable=SC2154

# A server outlives the program that starts it, so it must not hold that program's files or locks. Bash reads the script
# itself from descriptor 255.
for descriptor in /proc/$$/fd/*; do
  descriptor=${descriptor##*/}
  [ "$descriptor" -le 2 ] || [ "$descriptor" = 255 ] || eval "exec $descriptor>&-"
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
services=${HW_SERVICES_DIR:-$root/target/services}

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# install_package NAME PACKAGE [INSTEAD]: without starting the package's own service.
install_package() {
  [ "$(id -u)" = 0 ] || fail "$1 is not installed and we are not root; install it with: sudo apt-get install $2"
  command -v apt-get >/dev/null || fail "$1 is not installed and there is no apt-get; ${3:-install its package}"
  "$root/scripts/test-deps.sh" >&2 || fail "apt-get could not install $2; is there a network?"
}

# Whether something listens on the port.
is_open() {
  (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
}

# refuse_taken_port VARIABLE: fails if something else listens there.
refuse_taken_port() {
  ! is_open || fail "port $port is taken by something else; set $1 to a free one"
}

# running_with GREP-ARGUMENTS: the recorded process id, if that process's command line still matches. The id may belong to
# another process by now.
running_with() {
  local pid
  pid=$(cat "$dir/pid" 2>/dev/null) || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "$@" || return 1
  echo "$pid"
}

# await PID LOG CHECK: prints the URL once CHECK holds. Fails after half a minute, or if the process has ended.
await() {
  for _ in {1..300}; do
    if ("$3") 2>/dev/null; then
      echo "$url"
      return
    fi
    kill -0 "$1" 2>/dev/null || fail "it ended at once: $(tail -3 "$2")"
    sleep 0.1
  done
  fail "not ready after 30 s: $(tail -3 "$2")"
}

# gone PID TENTHS: whether the process has ended, within this many tenths of a second. A zombie counts as ended.
gone() {
  for _ in $(seq "$2"); do
    kill -0 "$1" 2>/dev/null && [ "$(awk '/^State:/ { print $2 }' "/proc/$1/status" 2>/dev/null)" != Z ] || return 0
    sleep 0.1
  done
  return 1
}

# stop_with COMMAND...: runs `COMMAND... PID` for a clean stop, and terminates the process if it has not ended after ten
# seconds. Not by SIGKILL: the command that `timeout` runs would stay.
stop_with() {
  local pid
  pid=$(running) || return 0
  "$@" "$pid" || true
  gone "$pid" 100 || kill "$pid" 2>/dev/null || true
  rm -f "$dir/pid"
}

# lock FILE: test programs that start at the same time must not start two of them. The started process must not inherit it:
# `start 9>&-`.
lock() {
  mkdir -p "$services"
  exec 9>"$1"
  flock 9
}
