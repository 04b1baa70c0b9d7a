#!/bin/sh
# Makes sure that there is a Chromium for the browser tests, or says loudly that there is none.
set -u
for name in "${HELDOUT_CHROMIUM:-}" chromium chromium-browser google-chrome; do
  [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing chromium for the browser tests"
  log=$(mktemp)
  if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >"$log" 2>&1; then
    rm -f "$log"
    exit 0
  fi
  tail -n 5 "$log"
  rm -f "$log"
fi
echo "!!! no Chromium, and it could not be installed: BROWSER TESTS WILL NOT RUN." >&2
echo "!!! install it (Debian, Ubuntu: apt-get install chromium) or set HELDOUT_CHROMIUM to its path." >&2
exit 0
