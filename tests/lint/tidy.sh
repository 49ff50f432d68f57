#!/bin/sh
# tidy.sh FLAGS FILE...: clang-tidy finds nothing (.clang-tidy says what it looks for).
set -u
flags=$1
shift
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c '
    out=$(clang-tidy-14 --quiet "$1" -- $2 2>&1) || { printf "%s\n" "$out"; exit 1; }' sh {} "$flags -DKERNELS_ISA=baseline -Wno-unknown-pragmas"
