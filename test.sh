#!/usr/bin/env bash
# Runs every test of the workspace. Arguments go to `cargo test`, for instance `./test.sh -p idempotency`.
#
# Needs nothing but Rust and a C compiler (SQLite is built from its sources).
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v cc >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev
    else
        echo "a C compiler is missing: install the package gcc" >&2
        exit 1
    fi
fi

if [ $# -gt 0 ]; then
    exec cargo test --all-features "$@"
fi
exec cargo test --workspace --all-features
