#!/bin/sh
# run.sh DIR [PYTHON_TESTS]: run every test program under DIR one after the other, then the Python tests in a folder, if
# $PYTHON has what they need; show what failed, end with "N passed, N failed".
# A program that crashes, hangs or reports nothing counts as one failure. AFTD_TEST_SLOW=N stretches all time limits.
set -u
dir=$1 python_tests=${2:-}
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
# add NAME START CODE OK BAD LEFT: count and show what one program said in the log. OK, BAD and LEFT are its tests.
add() {
    bad=$5
    [ "$3" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    [ "$4" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$6" -eq 0 ] && bad=1
    passed=$((passed + $4)) failed=$((failed + bad)) skipped=$((skipped + $6))
    printf '%-44s %4d passed %3d failed %4ds\n' "$1" "$4" "$bad" $(($(date +%s) - $2))
    grep -i 'skipped' "$log" | grep -vE '^\[|^[0-9]+ ' | sort -u | sed 's/^/    /'
    if [ "$bad" -ne 0 ]; then
        echo "---- $1 ended with $3:"
        cat "$log"
        echo "----"
    fi
}
count() { sed -n "s/^\[  $1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$log" | awk '{n += $1} END {print n + 0}'; }
for program in "$dir"/*/test_*; do
    case ${program##*/} in *.*) continue ;; esac # objects and the like
    start=$(date +%s)
    timeout $((240 * AFTD_TEST_SLOW)) "$program" >"$log" 2>&1
    code=$?
    add "${program#"$dir"/}" "$start" $code "$(count PASSED)" "$(count FAILED)" "$(count SKIPPED)"
done
# pytest ends with a line like "1 failed, 85 passed, 2 skipped in 9.80s"; an error is a test that could not start.
said() { grep -E '^[0-9]+ .* in [0-9.]+s' "$log" | tail -n 1 | grep -oE "[0-9]+ ($1)" | awk '{n += $1} END {print n + 0}'; }
if [ -z "$python_tests" ]; then
    :
elif ! lacks=$("${PYTHON:=python3}" -c 'import matplotlib, numpy, PIL, pytest, safetensors, torch, tqdm; torch.optim.Muon' 2>&1); then
    echo "$python_tests was not run ($PYTHON: $(echo "$lacks" | tail -n 1)); for what it needs: make deps-train"
else
    start=$(date +%s)
    PYTHONPATH=weights/train PYTHONDONTWRITEBYTECODE=1 timeout $((1200 * AFTD_TEST_SLOW)) \
        "$PYTHON" -m pytest -q -rs -p no:cacheprovider "$python_tests" >"$log" 2>&1
    code=$?
    add "$python_tests" "$start" $code "$(said passed)" "$(said 'failed|error')" "$(said skipped)"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
