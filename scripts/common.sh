# Sourced by the other scripts: the project's folder, and the output of steps.
# shellcheck shell=bash

project_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || echo 2)
export project_root jobs

# say TEXT...: progress, on stderr, because stdout is for results.
say() { printf '%s\n' "$*" >&2; }

# die CODE TEXT...
die() {
  local code=$1
  shift
  say "$*"
  exit "$code"
}

# usage_from_header FILE: prints the comment at the head of a script, which is its help.
usage_from_header() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$1"; }

# quietly LOG COMMAND...: runs a command whose output matters only if it fails.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    die 3 "That failed: $*. The whole output is in $log."
  fi
}

# parts_of LOG: the block at the end of a configure log that lists the parts that are built and those that are left out.
parts_of() { sed -n 's/^--   \(built\|left out\) /  \1 /p' "$1" >&2; }

# configure PRESET [OPTION...]
configure() {
  local log=$project_root/build/$1.configure.log
  quietly "$log" cmake --preset "$@"
  parts_of "$log"
}
