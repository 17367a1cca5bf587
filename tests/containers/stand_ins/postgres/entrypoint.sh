#!/usr/bin/env bash
# First start: a cluster, its database, and what lies in /docker-entrypoint-initdb.d. Then the server.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$PGDATA"
  chown -R postgres "$PGDATA" /var/run/postgresql
  exec setpriv --reuid postgres --regid postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb -U postgres --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 >/dev/null
  printf "listen_addresses = '*'\n" >>"$PGDATA/postgresql.conf"
  printf 'host all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
  pg_ctl -o "-c listen_addresses=''" -w start >/dev/null
  createdb -U postgres "$POSTGRES_DB"
  for file in /docker-entrypoint-initdb.d/*.sql; do
    psql -q -v ON_ERROR_STOP=1 --no-psqlrc -U postgres -d "$POSTGRES_DB" -f "$file"
  done
  pg_ctl -m fast -w stop >/dev/null
fi
exec "$@"
