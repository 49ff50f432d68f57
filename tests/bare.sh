#!/usr/bin/env bash
# bare.sh: what the README promises, where nothing else is: in a fresh Debian root, of the SUITE bookworm or trixie, with
# git, gcc and make alone, clone the last commit, `make run` and ask it for a label and a text, then `make test`. Ends
# with the tests' own line "N passed, N failed". Needs root, debootstrap and Debian's mirror; says what is missing. The
# root lies in build/bare and goes in the end; what debootstrap downloaded stays in build/bare-cache for the next time.
# What make has built goes to the folder AFTD_BARE_BUILD, if that is set, this machine has the same Debian, so that it runs
# here too, and the files are those of the last commit. The root shares the machine's network, so port 8080 must be free.
set -u
cd "$(dirname "$0")/.." || exit 1
target=test-bare
. tests/bare_root.sh
bare_needs
curl -s -o /dev/null http://127.0.0.1:8080/ && missing "port 8080 is taken, which make run needs"

echo "---- a bare $suite root"
bare_root bare git,gcc,make,ca-certificates
git clone -q --no-hardlinks . "$root/srv/aftd" || exit 1

echo "---- make run"
inside /srv/aftd make run >"$cache/run.log" 2>&1 &
run=$!
# Before the root goes, whatever runs in there does; else it would go on without its files.
trap 'kill -KILL "$run" 2>/dev/null; wait "$run" 2>/dev/null; rm -rf "$root"' EXIT
trap 'exit 130' INT TERM HUP
for _ in $(seq 600); do # it installs packages and builds first
    curl -sf -o /dev/null http://127.0.0.1:8080/readyz && break
    kill -0 "$run" 2>/dev/null || break
    sleep 1
done
sample=weights/models/cifar10-aft-conv/sample.jpg
label=$(curl -s --max-time 20 --data-binary @$sample 'http://127.0.0.1:8080/classify?top_k=1')
text=$(curl -s --max-time 20 -d '{"prompt": "The history of ", "max_tokens": 20, "seed": 1}' http://127.0.0.1:8080/generate)
echo "$label"
echo "$text"
if ! [[ $label = *'"label":"ship"'* && $text = *'"finish_reason":"length"'* &&
    -S $root/srv/aftd/build/admin.sock ]]; then
    tail -n 40 "$cache/run.log"
    echo "make run does not answer as the README says, or has no build/admin.sock"
    exit 1
fi
kill -KILL "$run" # unshare does not heed TERM; its child ends with it
wait "$run" 2>/dev/null
rm -f "$root/srv/aftd/build/admin.sock" # which it could not remove

echo "---- make test"
inside /srv/aftd make test ${AFTD_TEST_JOBS:+AFTD_TEST_JOBS=$AFTD_TEST_JOBS} &
run=$!
wait "$run"
code=$?
if [ -n "${AFTD_BARE_BUILD:-}" ] && grep -qx "VERSION_CODENAME=$suite" /etc/os-release && git diff --quiet HEAD; then
    cp -a "$root/srv/aftd/build/." "$AFTD_BARE_BUILD/"
fi
exit "$code"
