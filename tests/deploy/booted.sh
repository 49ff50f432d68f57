#!/usr/bin/env bash
# booted.sh: the units of deploy/systemd under a systemd of their own, as process 1 of new namespaces, on this machine's
# root with a layer of memory above it, of which nothing stays. What is looked at is what only a real one shows: that
# the program lives under the units' restrictions, with sockets, credentials and watchdog. Root, Linux with overlayfs.
# Ends with "N passed, N failed"; where it cannot run, it says why and counts as skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/deploy/boot.sh
passed=0 failed=0

skip() {
    echo "skipped: $1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "needs root"
for needed in /lib/systemd/systemd /usr/bin/systemctl /usr/bin/curl /usr/bin/unshare; do
    [ -x "$needed" ] || skip "there is no $needed; make deps-units"
done

# ---- its root ------------------------------------------------------------------------------------------------------

machine_with_units() { # this machine, with a layer of memory above it, with the units and no other services
    local layer=$1.layer
    mkdir "$layer"
    mount -t tmpfs tmpfs "$layer"
    mkdir "$layer/above" "$layer/work"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/above,workdir=$layer/work" "$1"
    rm -rf "$1"/etc/systemd/system/* "$1/etc/aftd" "$1/var/lib/aftd"
    install -D -t "$1/usr/bin" build/aftd build/aft
    install -D -m 644 -t "$1/etc/systemd/system" deploy/systemd/*.service deploy/systemd/*.socket
    install -D -m 644 deploy/systemd/sysusers.conf "$1/usr/lib/sysusers.d/aftd.conf"
    mkdir -p "$1/usr/share/aftd/models" "$1/etc/aftd"
    cp -r tests/data/models/enwik8-aft-local/. "$1/usr/share/aftd/models/enwik8-aft-local"
    cp -r tests/data/models/cifar10-aft-conv/. "$1/usr/share/aftd/models/cifar10-aft-conv"
    cp weights/models/cifar10-aft-conv/sample.jpg "$1/picture.jpg"
    echo '{"models_dir": "/usr/share/aftd/models", "metrics_address": "127.0.0.1"}' >"$1/etc/aftd/aftd.json"
    echo '{"models_dir": "/usr/share/aftd/models", "listen_port": 8090}' >"$1/etc/aftd/second.json"
}
export -f machine_with_units
dir=$(mktemp -d) || exit 1
trap 'shut; rm -rf "$dir"' EXIT
boot machine_with_units || skip "$why"

# ---- what must hold ------------------------------------------------------------------------------------------------

check() { # check WHAT COMMAND...: the command succeeds
    local what=$1
    shift
    if "$@" >"$dir/said" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        tail -n 5 "$dir/said"
    fi
}
get() { within curl -sS -m 20 "$@"; }
of_process() { within sed -n "s/^$1:[[:space:]]*//p" "/proc/$(property aftd MainPID)/status"; }
metric() { get "http://127.0.0.1:$1/metrics" | awk -v name="$2" '$1 == name {found = $2 > 0} END {exit !found}'; }
pinned() { # there are as many threads on a processor of their own as there are processors
    [ "$(nproc)" -eq 1 ] && return 0
    [ "$(within sh -c "grep -hxE 'Cpus_allowed_list:\s[0-9]+' /proc/$(property aftd MainPID)/task/*/status" | sort -u | wc -l)" -ge 2 ]
}

check "the user is made" within systemd-sysusers
check "the sockets are open" within systemctl start aftd.socket aftd-admin.socket
check "a request starts the daemon" says '"status":"ready"' get http://127.0.0.1:8080/readyz
check "it is active" shows aftd ActiveState active
if [ "$failed" -gt 0 ]; then
    within journalctl -n 30 --no-pager -o cat
    echo "$passed passed, $failed failed"
    exit 1
fi
check "it says how it is" await shows aftd StatusText '2 models, 0 of 64 stream slots in use'
check "it is the user aftd" is "$(within stat -c %U "/proc/$(property aftd MainPID)")" aftd
check "it has no capability" is "$(of_process CapBnd)" 0000000000000000
check "its system calls are filtered" is "$(of_process Seccomp)" 2
check "it classifies" says '"label"' get --data-binary @/picture.jpg http://127.0.0.1:8080/classify
check "it generates" says '"finish_reason":"length"' get -d '{"prompt": "The ", "max_tokens": 20}' http://127.0.0.1:8080/generate
check "it streams" says 'data: ' get -d '{"prompt": "The ", "max_tokens": 20, "stream": true}' http://127.0.0.1:8080/generate
check "many streams, for which all threads work" says '"index":47' get -d '{"prompt": "The ", "n": 48, "max_tokens": 8}' http://127.0.0.1:8080/generate
check "its threads are pinned" pinned
for name in process_start_time_seconds process_resident_memory_bytes process_open_fds process_max_fds process_threads; do
    check "it knows its $name" metric 8082 "$name"
done
check "monitors see no more" says '"not_found"' get http://127.0.0.1:8082/v1/models
check "the socket of administration is there" says '"state":"loaded"' get --unix-socket /run/aftd/admin.sock http://x/admin/models
check "administration reloads" says '"models":' get --unix-socket /run/aftd/admin.sock -d '{}' http://x/admin/config/reload
check "it is reloaded" within systemctl reload aftd
check "a reload is waited for" says 'reload: {' within journalctl -u aftd -o cat --no-pager
check "it is active after that" await shows aftd ActiveState active

within aft load http://127.0.0.1:8080 --concurrency 4 --max-tokens 30 --duration 8 --json >"$dir/load" 2>&1 &
load=$!
for _ in 1 2 3 4 5; do
    sleep 0.5
    check "it is restarted" within systemctl restart aftd
done
wait "$load"
check "no request fails meanwhile" grep -qE '"failed": ?0,' "$dir/load"

drop_in() { # drop_in LINE...: of aftd.service, instead of those before
    within mkdir -p /etc/systemd/system/aftd.service.d
    printf '%s\n' '[Service]' "$@" | within tee /etc/systemd/system/aftd.service.d/test.conf >/dev/null
    within systemctl daemon-reload && within systemctl restart aftd
}
key=$(within aft key add alice --file /etc/aftd/keys.json | tail -n 1)
check "credentials are passed" drop_in LoadCredential=keys:/etc/aftd/keys.json Environment=AFTD_KEYS_FILE=%d/keys
check "without a key nothing is served" says invalid_api_key get http://127.0.0.1:8080/v1/models
check "with the key it is" says enwik8-aft-local get -H "Authorization: Bearer $key" http://127.0.0.1:8080/v1/models

check "the watchdog's time is changed" drop_in WatchdogSec=2
check "it lives beyond it" bash -c 'sleep 5'
check "nothing has restarted it" shows aftd NRestarts 0
within kill -STOP "$(property aftd MainPID)"
check "one that stands still is killed" await shows aftd NRestarts 1
check "and replaced" await shows aftd SubState running

check "another instance runs beside it" within systemctl start aftd@second
check "and serves" says '"status":"ready"' get http://127.0.0.1:8090/readyz
check "both end" within systemctl stop aftd@second aftd.service aftd.socket
check "well" shows aftd Result success
check "the sockets of administration stay" within test -S /run/aftd/admin.sock

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
