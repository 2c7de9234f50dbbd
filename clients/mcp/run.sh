#!/usr/bin/env bash
# Tests the tools of a sandbox with the conformance suite of the protocol: mcp/run.sh GUEST NPM_HOME
#
# Fails on every failure that baseline.yml does not list. The last two lines are the numbers that
# passed and failed.
set -euo pipefail
guest=$1 npm_home=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

(cd "$scratch" && exec "$guest" --listen 127.0.0.1:0 >address 2>log) &
server=$!
until [ -s "$scratch/address" ]; do
    kill -0 "$server" 2>/dev/null || { cat "$scratch/log" >&2; exit 1; }
    sleep 0.1
done

status=0
node --import "$here/node20.mjs" "$npm_home/node_modules/@modelcontextprotocol/conformance/dist/index.js" server \
    --url "http://$(cat "$scratch/address")/mcp" --suite all --expected-failures "$here/baseline.yml" \
    >"$scratch/result" 2>&1 || status=$?
cat "$scratch/result"
kill -0 "$server" || status=1
echo "passed $(grep -c '^✓.*: [1-9]' "$scratch/result" || true)"
echo "failed $status"
exit "$status"
