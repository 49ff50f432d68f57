#!/bin/sh
# run.sh DIR: run every test program under DIR one after the other, show what failed, end with "N passed, N failed".
# A program that crashes, hangs or reports nothing counts as one failure. AFTD_TEST_SLOW=N stretches all time limits.
set -u
dir=$1
slow=1
case $dir in
*asan*) slow=4 ;;
*tsan*) slow=10 ;;
esac
export AFTD_TEST_SLOW="${AFTD_TEST_SLOW:-$slow}"
case $dir in
*tsan*)
    export OMP_TOOL_LIBRARIES="${OMP_TOOL_LIBRARIES:-/usr/lib/llvm-14/lib/libarcher.so}"
    export TSAN_OPTIONS="${TSAN_OPTIONS:-ignore_noninstrumented_modules=1}"
    ;;
esac
# As the programs do for themselves (server/spin.h): threads that spin on would starve the daemon that a test talks to.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}"
# Not detect_stack_use_after_return: with it gcc 12 misaligns AVX-512 variables on the stack (GCC bug 110027).
export ASAN_OPTIONS="${ASAN_OPTIONS:-strict_string_checks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
count() { sed -n "s/^\[  $1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$log" | awk '{n += $1} END {print n + 0}'; }
for program in "$dir"/*/test_*; do
    case ${program##*/} in *.*) continue ;; esac # objects and the like
    start=$(date +%s)
    timeout $((240 * AFTD_TEST_SLOW)) "$program" >"$log" 2>&1
    code=$?
    ok=$(count PASSED) bad=$(count FAILED) left=$(count SKIPPED)
    [ $code -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$left" -eq 0 ] && bad=1
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
    printf '%-44s %4d passed %3d failed %4ds\n' "${program#"$dir"/}" "$ok" "$bad" $(($(date +%s) - start))
    grep -i 'skipped' "$log" | grep -v '^\[' | sort -u | sed 's/^/    /'
    if [ "$bad" -ne 0 ]; then
        echo "---- $program ended with $code:"
        cat "$log"
        echo "----"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
