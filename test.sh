#!/usr/bin/env bash
# Runs every test of the workspace. Arguments go to `cargo test`, for instance `./test.sh -p idempotency`.
#
# Needs Rust, a C compiler (SQLite is built from its sources), PostgreSQL, PgBouncer, MariaDB, Redis, OpenSSL and faketime.
# Run by root where there is apt, it installs what is missing. The tests start servers of their own, on free ports in
# temporary folders.
set -euo pipefail
cd "$(dirname "$0")"

packages=()
command -v cc >/dev/null || packages+=(gcc libc6-dev)
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || [ -x "$(pg_config --bindir 2>/dev/null)/postgres" ] ||
    packages+=(postgresql)
[ -x /usr/sbin/pgbouncer ] || packages+=(pgbouncer)
[ -x /usr/sbin/mariadbd ] || command -v mariadbd >/dev/null || packages+=(mariadb-server)
command -v redis-server >/dev/null && command -v redis-cli >/dev/null || packages+=(redis-server)
[ -x /usr/bin/openssl ] || packages+=(openssl)
[ -x /usr/bin/faketime ] || packages+=(faketime)
if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${packages[@]}"
    else
        echo "something is missing: install the packages ${packages[*]}" >&2
        exit 1
    fi
fi

if [ $# -gt 0 ]; then
    exec cargo test --all-features "$@"
fi
exec cargo test --workspace --all-features
