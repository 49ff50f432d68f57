#!/bin/sh
# format.sh FILE...: every C file stands as .clang-format wants it, and no line passes 120 columns.
set -u
clang-format-14 --dry-run -Werror "$@" || exit 1
awk 'length($0) > 120 {printf "%s:%d: %d columns, at most 120\n", FILENAME, FNR, length($0); bad = 1} END {exit bad}' "$@"
