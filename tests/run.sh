#!/usr/bin/env bash
# run.sh DIR [PYTHON_TESTS...]: run every test program under DIR, and the Python tests in folders, if $PYTHON has what they
# need; show what failed, end with "N passed, N failed".
# As many run at a time as there are processors, or AFTD_TEST_JOBS=N: half of their time they wait, and a daemon under test
# computes with one thread. What each says is shown whole, in the order in which they started.
# A program that crashes, hangs or reports nothing counts as one failure. AFTD_TEST_SLOW=N stretches all time limits;
# without it they are stretched by what the sanitizers cost.
# AFTD_TEST_PROGRAMS="NAME..." runs these programs alone, beside the Python tests; AFTD_TEST_UNDER="COMMAND..." runs each with
# that before it.
set -u
dir=$1
shift
python_tests=" $* "
slow=1
case $dir in
*asan* | *cover*) slow=4 ;;
*tsan*) slow=10 ;;
esac
export AFTD_TEST_SLOW="${AFTD_TEST_SLOW:-$slow}"
case $dir in
*tsan*)
    export OMP_TOOL_LIBRARIES="${OMP_TOOL_LIBRARIES:-/usr/lib/llvm-14/lib/libarcher.so}"
    export TSAN_OPTIONS="${TSAN_OPTIONS:-ignore_noninstrumented_modules=1}"
    ;;
esac
# As the programs do for themselves (server/core/short_spin.h): threads that spin on would starve the daemon that a test talks to.
# LLVM's libomp, of the tsan build, spins 0.2 s at every barrier: beside other work steps take thirty times as long.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}" KMP_BLOCKTIME="${KMP_BLOCKTIME:-0}"
# Not detect_stack_use_after_return: with it gcc 12 misaligns AVX-512 variables on the stack (GCC bug 110027).
export ASAN_OPTIONS="${ASAN_OPTIONS:-strict_string_checks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
jobs=${AFTD_TEST_JOBS:-$(nproc)}
logs=$(mktemp -d) || exit 1
# shellcheck disable=SC2046 # one word for each job
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

# ---- running -------------------------------------------------------------------------------------------------------

# As a background job: LOG.code, .time and the log itself. What a shell runs in the background ignores Ctrl-C, and so would
# the daemons that are tested with it; the job is told by TERM, and passes it on.
run() { # run LOG SECONDS COMMAND...
    local log=$1 seconds=$2 child
    shift 2
    TIMEFORMAT='%R %U %S'
    {
        time {
            env --default-signal=INT,QUIT timeout "$seconds" "$@" >"$log" 2>&1 &
            child=$!
            trap 'kill "$child"' TERM
            wait "$child"
        }
    } 2>"$log.time"
    echo $? >"$log.code"
}
is_python() { [[ $python_tests = *" $1 "* ]]; }
start() { # start NAME
    local log="$logs/${1//\//-}"
    if is_python "$1"; then
        PYTHONPATH=weights/train PYTHONPYCACHEPREFIX=build/pycache run "$log" $((1200 * AFTD_TEST_SLOW)) \
            "$PYTHON" -m pytest -q -rs -p no:cacheprovider "$1" &
    else
        # shellcheck disable=SC2086 # words
        run "$log" $((600 * AFTD_TEST_SLOW)) ${AFTD_TEST_UNDER:-} "$dir/$1" &
    fi
}

# ---- telling -------------------------------------------------------------------------------------------------------

passed=0 failed=0 skipped=0
# cmocka 1.1.8 puts the group's name before the number of what failed or was skipped.
count() { sed -n "s/^\[  $1 *\] \(.*: \)\{0,1\}\([0-9][0-9]*\) test(s).*/\2/p" "$2" | awk '{n += $1} END {print n + 0}'; }
# pytest ends with a line like "1 failed, 85 passed, 2 skipped in 9.80s"; an error is a test that could not start.
said() { grep -E '^[0-9]+ .* in [0-9.]+s' "$2" | tail -n 1 | grep -oE "[0-9]+ ($1)" | awk '{n += $1} END {print n + 0}'; }
show() { # show NAME: count and show what it said, once it has ended
    local log="$logs/${1//\//-}" code ok bad left
    code=$(cat "$log.code" 2>/dev/null || echo 137) # none: somebody killed the job itself
    if is_python "$1"; then
        ok=$(said passed "$log") bad=$(said 'failed|error' "$log") left=$(said skipped "$log")
    else
        ok=$(count PASSED "$log") bad=$(count FAILED "$log") left=$(count SKIPPED "$log")
    fi
    [ "$code" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$left" -eq 0 ] && bad=1
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
    awk -v name="$1" -v ok="$ok" -v bad="$bad" 'END {
        printf "%-44s %4d passed %3d failed %6.1f s, %6.1f of a processor\n", name, ok, bad, $1, $2 + $3}' "$log.time"
    grep -i 'skipped' "$log" | grep -vE '^\[|^[0-9]+ ' | sort -u | sed 's/^/    /'
    if [ "$bad" -ne 0 ]; then
        echo "---- $1 ended with $code:"
        cat "$log"
        echo "----"
    fi
}
running() { jobs -pr | wc -l; }
all() { # all of names, up to $jobs at a time
    local next=0 shown=0
    while [ "$shown" -lt "${#names[@]}" ]; do
        while [ "$next" -lt "${#names[@]}" ] && [ "$(running)" -lt "$jobs" ]; do
            start "${names[next]}"
            next=$((next + 1))
        done
        wait -n
        while [ "$shown" -lt "$next" ] && { [ -e "$logs/${names[shown]//\//-}.code" ] || [ "$(running)" -eq 0 ]; }; do
            show "${names[shown]}"
            shown=$((shown + 1))
        done
    done
    wait # one may have said how it ended, and not have ended: whoever comes next would wait for that
}

# ---- what there is -------------------------------------------------------------------------------------------------

names=()
for folder in $python_tests; do
    case $folder in
    */train) needs='import matplotlib, numpy, PIL, pytest, safetensors, torch, tqdm; torch.optim.Muon' ;;
    *) needs='import pytest' ;; # they skip what they lack the client for
    esac
    if lacks=$("${PYTHON:=python3}" -c "$needs" 2>&1); then
        names+=("$folder") # first, as they take longest
    else
        echo "$folder was not run ($PYTHON: $(echo "$lacks" | tail -n 1)); for what it needs: make deps-${folder##*/}"
    fi
done
while read -r name; do
    case " ${AFTD_TEST_PROGRAMS:-$name} " in *" $name "*) ;; *) continue ;; esac
    names+=("$name")
done < <(cd "$dir" && find . -type f -name 'test_*' ! -name '*.*' | cut -c 3- | LC_ALL=C sort)
all
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
