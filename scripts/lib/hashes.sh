# Functions of scripts/bootstrap: what a registry sends is what it was when somebody looked at it.
# shellcheck shell=bash

# jar_hashes FOLDER: of each jar, as SHA256SUMS has them.
jar_hashes() { (LC_ALL=C && cd "$1" && sha256sum -- *.jar); }

# jars_agree FOLDER SHA256SUMS: the folder has the jars of the list, and no other; what differs is printed.
jars_agree() { diff <(jar_hashes "$1") "$2" >&2; }

# file_agrees FILE SHA256
file_agrees() { echo "$2  $1" | sha256sum --check --quiet >&2; }
