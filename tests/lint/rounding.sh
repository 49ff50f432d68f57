#!/usr/bin/env bash
# rounding.sh VARIANT...: in these builds, each object is compiled with -ffp-contract=off, and with nothing that lets
# the compiler round as it likes after all: what is fused is what lanes.h says, so that results have the same
# bits whatever compiled them.
set -u
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MAKELEVEL
failed=0
for variant in "$@"; do
    commands=$(make -n -B V=1 "VARIANT=$variant" COMMIT=unknown programs 2>/dev/null | grep -e ' -c -o ')
    [ -n "$commands" ] || { echo "make VARIANT=$variant compiles nothing"; failed=1; }
    wrong=$(awk '{
        contract = "no -ffp-contract"
        loose = ""
        for (i = 1; i <= NF; i++)
            if ($i ~ /^-ffp-contract=/)
                contract = $i
            else if ($i ~ /^-(Ofast|ffast-math|funsafe-math-optimizations|fassociative-math|freciprocal-math)$/)
                loose = $i
        if (contract != "-ffp-contract=off" || loose != "")
            print $NF ": " (loose != "" ? loose : contract)
    }' <<<"$commands")
    [ -z "$wrong" ] || { echo "make VARIANT=$variant lets the compiler round as it likes: $wrong"; failed=1; }
done
exit "$failed"
