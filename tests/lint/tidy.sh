#!/bin/sh
# tidy.sh CHECKS FLAGS FILE...: clang-tidy finds nothing; CHECKS, where not empty, add to what .clang-tidy looks for.
set -u
checks=$1 flags=$2
shift 2
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c '
    out=$(clang-tidy-14 --quiet --checks="$3" "$1" -- $2 2>&1) || { printf "%s\n" "$out"; exit 1; }' \
    sh {} "$flags -DKERNELS_ISA=baseline -Wno-unknown-pragmas" "$checks"
