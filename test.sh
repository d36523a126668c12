#!/usr/bin/env bash
# Runs every test of the workspace. Arguments go to `cargo test`, for instance `./test.sh -p idempotency`.
#
# Needs Rust, a C compiler (SQLite is built from its sources), PostgreSQL, PgBouncer, MariaDB, Redis, OpenSSL, faketime,
# Python and Node (18 or later), and for the clients that are tests their registries.
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
command -v python3 >/dev/null || packages+=(python3)
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
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
# Every failure is shown, not the first alone.
exec cargo test --workspace --all-features --no-fail-fast
