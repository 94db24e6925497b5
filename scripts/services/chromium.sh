#!/usr/bin/env bash
# chromium.sh pipe|shot URL OUT.png|path: a headless browser, with a temporary profile.
#
# pipe   runs it and speaks the DevTools protocol over standard input and output: JSON messages, each ended by a zero
#        byte. It ends when its input does.
# shot   writes a picture of the page after HW_BROWSER_WAIT.
# path   prints which browser is used, or fails and says how to get one.
#
# Settings: HW_BROWSER (the first found of chromium, chromium-browser, google-chrome), HW_BROWSER_LIFE (10m; it ends
# automatically after that), HW_BROWSER_SIZE (1280,900), HW_BROWSER_WAIT (3000 ms of the page's time). It installs nothing:
# scripts/test-deps.sh does.
set -euo pipefail

fail() {
  echo "chromium.sh: $*" >&2
  exit 1
}

browser() {
  local name
  for name in ${HW_BROWSER:-chromium chromium-browser google-chrome}; do
    ! command -v "$name" || return 0
  done
  fail "no chromium, chromium-browser or google-chrome here; scripts/test-deps.sh installs the first"
}

# Only the page's own requests go over the network. Inside a container there is neither a sandbox nor much shared
# memory; the pages are our own.
flags() {
  printf '%s\n' --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --no-default-browser-check \
    --disable-background-networking --disable-component-update --disable-default-apps --disable-extensions --disable-sync \
    --disable-background-timer-throttling --disable-renderer-backgrounding --disable-features=Translate,MediaRouter \
    --metrics-recording-only --mute-audio --hide-scrollbars --no-proxy-server \
    "--window-size=${HW_BROWSER_SIZE:-1280,900}" "--user-data-dir=$profile"
}

main() {
  local found
  case "${1:-}" in
    path) browser; return ;;
    pipe) ;;
    shot) [ $# = 3 ] || fail "usage: chromium.sh shot URL OUT.png" ;;
    *) fail "usage: chromium.sh pipe|shot URL OUT.png|path" ;;
  esac
  found=$(browser)
  profile=$(mktemp -d "${TMPDIR:-/tmp}/highwater-chromium.XXXXXX")
  trap 'rm -rf "$profile"' EXIT
  trap 'exit 143' TERM INT HUP
  mapfile -t arguments < <(flags)
  if [ "$1" = pipe ]; then
    timeout --kill-after=5s "${HW_BROWSER_LIFE:-10m}" "$found" "${arguments[@]}" --remote-debugging-pipe about:blank \
      3<&0 4>&1 </dev/null >/dev/null 2>"$profile/log" || true
  else
    timeout --kill-after=5s 60 "$found" "${arguments[@]}" "--virtual-time-budget=${HW_BROWSER_WAIT:-3000}" \
      "--screenshot=$3" "$2" 2>"$profile/log" >&2 || fail "$(tail -3 "$profile/log")"
  fi
}

main "$@"
