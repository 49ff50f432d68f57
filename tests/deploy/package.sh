#!/usr/bin/env bash
# package.sh: the Debian packages, from the last commit to a machine that has nothing of them any more. Builds them
# twice, in different folders of a Debian root, and compares; asks lintian; installs them with apt in a bare root, starts
# the daemon there as its unit does, asks it from outside; upgrades, rolls back, removes and purges them. Then the same
# with systemd in that root, under load. Ends with "N passed, N failed". Needs what bare_root.sh does and says what is
# missing; SUITE is which Debian. Where systemd cannot be booted, it says why and skips that part.
set -u
cd "$(dirname "$0")/../.." || exit 1
target=test-package
. tests/bare_root.sh
. tests/deploy/checks.sh
. tests/deploy/boot.sh
bare_needs
work=$PWD/build/package
passed=0 failed=0 background=()
builder=$PWD/build/package-builder
trap '[ ${#background[@]} = 0 ] || kill -KILL "${background[@]}" 2>/dev/null; shut; wait; rm -rf "$root" "$builder"' EXIT
rm -rf "$work"
mkdir -p "$work"

both() { # both PATTERN TEXT: the text has it
    [[ $2 = *$1* ]] || { echo "expected \"$1\" in: $2"; return 1; }
}
empty() {
    [ -z "$1" ] || { echo "$1"; return 1; }
}
run() { (inside / "$@"); }

echo "---- building in a $suite root"
bare_root package-builder git,make,gcc,ca-certificates
builds() { (root=$builder; inside /srv/aftd env DEBIAN_FRONTEND=noninteractive "$@"); } # there, in the tree
git clone -q --no-hardlinks . "$builder/srv/aftd" || exit 1
a=$builder/srv/a another=$builder/srv/another/folder
mkdir -p "$a" "$another"
check "apt installs what building them needs" builds make deps-package
build() {
    builds env BUILD_PACKAGES= deploy/deb.sh "$1" >"$work/log" 2>&1 || { tail -n 30 "$work/log"; return 1; }
}
check "the packages build" build /srv/a
check "they build in another folder" build /srv/another/folder
same() {
    local deb
    for deb in "$a"/*.deb; do
        cmp "$deb" "$another/$(basename "$deb")" || return 1
    done
}
[ "$failed" -eq 0 ] || end
check "both builds are the same bytes" same
check "lintian finds no errors and no warnings" \
    builds sh -c 'lintian --allow-root --fail-on error,warning --tag-display-limit 0 /srv/a/*.deb'

# A later version, of the second tree, whose default configuration has changed too. Compiled anew is only what tells the
# version.
later() {
    # shellcheck disable=SC2016 # for the shell in there
    builds sh -c 'cd /srv/another/folder/aftd-*/ && rm -f ../*.deb &&
        sed -i "1s/(\(.*\))/(\1+later)/" debian/changelog &&
        sed -i "s/\"queue_jobs_max\": 256/\"queue_jobs_max\": 255/" config/aftd.json &&
        sed -i "s/^VERSION := .*/&+later/" Makefile && touch -d @0 Makefile &&
        grep -rlw --include=\*.c AFTD_VERSION config server | xargs touch &&
        DEB_BUILD_OPTIONS="terse nocheck" dpkg-buildpackage -b -us -uc -nc --ignore-builtin-builddeps'
}
check "a later version builds" later

echo "---- a bare $suite root"
bare_root package-root ca-certificates
export root
mkdir "$root/srv/debs" "$root/srv/later"
cp "$a"/aftd_*.deb "$a"/aftd-models_*.deb "$root/srv/debs"
cp "$another"/aftd_*.deb "$another"/aftd-models_*.deb "$root/srv/later"
there=run
apt() { # in there, with the shell's patterns; where dpkg would ask, a configuration that was edited stays
    $there env DEBIAN_FRONTEND=noninteractive sh -c \
        "apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-confold $*"
}
# What lies in the root, but for what apt and dpkg keep for themselves and what alternatives point to.
list() {
    find "$root" -xdev \( -path "$root/var/cache" -o -path "$root/var/log" -o -path "$root/var/lib/apt" -o \
        -path "$root/var/lib/dpkg" -o -path "$root/srv" \) -prune -o -lname '/etc/alternatives/*' \
        -o -printf '/%P\n' | sort
}
list >"$work/before"
check "apt updates its lists" apt update

echo "---- installing"
check "apt installs the packages and what they depend on" apt install "/srv/debs/*.deb"
[ "$failed" -eq 0 ] || end
check "what was installed is whole" run dpkg --verify aftd aftd-models
check "the daemon has a user of its own, without a shell" \
    both ':/var/lib/aftd:/usr/sbin/nologin' "$(run getent passwd aftd)"
check "its state is its own" both 'aftd aftd' "$(run stat -c '%U %G' /var/lib/aftd)"
check "the configuration is a conffile" both /etc/aftd/aftd.json "$(run cat /var/lib/dpkg/info/aftd.conffiles)"
check "aftd finds it by itself" both '"/usr/share/aftd/models"' "$(run aftd --print-config)"
check "aftd says so" both 'from file /etc/aftd/aftd.json' "$(run aftd --check-config)"
check "the shipped models compute what they should" run sh -c 'aft verify /usr/share/aftd/models/*/'
check "a precision of auto is that of the source tree" both "$(builds sh -c 'AFTD_PRECISION=auto /srv/a/aftd-*/build/aft inspect \
    weights/models/enwik8-aft-conv' | grep '^precision')" \
    "$(run env AFTD_PRECISION=auto aft inspect enwik8-aft-conv | grep '^precision')"
check "the models are whole" diff -r --exclude=.git weights/models "$root/usr/share/aftd/models"
text=$(run aft generate enwik8-aft-conv --prompt 'The history of ' --temperature 0 --max-tokens 9)
check "aft finds models by name" test "${#text}" -ge 9
page() { zcat "$root/usr/share/man/man$1.gz" | grep -q "$2"; }
check "aft(1) is there" page 1/aft.1 'Ss generate'
check "aftd(8) is there, and names this installation's folders" page 8/aftd.8 /etc/aftd/aftd.json
check "aftd.json(5) is there" page 5/aftd.json.5 'Ic listen_port'
check "the list of what is linked is there" python3 -c 'import json, sys
bom = json.load(open(sys.argv[1]))
assert "libjansson4" in [part["name"] for part in bom["components"]]' "$root/usr/share/doc/aftd/aftd.cdx.json"
complete() { # complete WORD...: what bash makes of it in there
    run bash -c '. /usr/share/bash-completion/completions/$1
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _$1
        echo "${COMPREPLY[*]}"' bash "$@"
}
check "bash completes flags of aftd" both --listen-port "$(complete aftd --lis)"
check "bash completes the installed models" both enwik8-aft-conv "$(complete aft generate enw)"

echo "---- running"
# As the unit does, but on a port of the kernel's choice.
command=$(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/aftd.service")
check "its unit says how it starts" both '/usr/bin/aftd --config /etc/aftd/aftd.json' "$command"
start() {
    inside / setpriv --reuid=aftd --regid=aftd --init-groups --no-new-privs env AFTD_LISTEN_PORT=0 $command \
        >"$work/daemon.log" 2>&1 &
    background=($!)
    for _ in $(seq 600); do
        port=$(sed -n 's|.*listening on http://127\.0\.0\.1:\([0-9]*\)$|\1|p' "$work/daemon.log")
        [ -n "$port" ] && return
        sleep 0.1
    done
}
port=
start
check "the daemon starts as its user, on the loopback interface" test -n "$port"
sample=weights/models/cifar10-aft-conv/sample.jpg
check "it classifies a picture" both '"label":"ship"' \
    "$(curl -s -m 20 --data-binary @$sample "http://127.0.0.1:$port/classify?model=cifar10-aft-conv&top_k=1")"
check "it generates a text" both '"finish_reason":"length"' \
    "$(curl -s -m 20 -d '{"prompt": "The history of ", "max_tokens": 20, "seed": 1}' "http://127.0.0.1:$port/generate")"
kill -TERM "$(pgrep -P "${background[0]}")" # unshare's child, whose exit code becomes unshare's
wait "${background[0]}"
check "it stops when it is told to" test $? -eq 0
background=()

echo "---- upgrading, removing, purging"
sed -i 's/"queue_jobs_max": 256/"queue_jobs_max": 7/' "$root/etc/aftd/aftd.json"
cp -r weights/models/cifar10-aft-conv "$root/var/lib/aftd/models/own"
check "a later version takes the place" apt install "/srv/later/*.deb"
check "it is the later one" both +later "$(run dpkg-query -W -f '${Version}' aftd)"
check "the edited configuration stays" grep -q '"queue_jobs_max": 7' "$root/etc/aftd/aftd.json"
check "the new default lies beside it" grep -q '"queue_jobs_max": 255' "$root/etc/aftd/aftd.json.dpkg-dist"
check "the operator's models stay" test -f "$root/var/lib/aftd/models/own/config.json"
check "the earlier version takes the place again" apt --allow-downgrades install "/srv/debs/*.deb"
check "it is the earlier one" test -d "$a/aftd-$(run dpkg-query -W -f '${Version}' aftd)"
check "the edited configuration stays then too" grep -q '"queue_jobs_max": 7' "$root/etc/aftd/aftd.json"
check "apt removes the packages" apt remove aftd aftd-models
check "the programs are gone" test ! -e "$root/usr/bin/aftd"
check "the edited configuration is still there" grep -q '"queue_jobs_max": 7' "$root/etc/aftd/aftd.json"
check "the operator's models are still there" test -f "$root/var/lib/aftd/models/own/config.json"
check "apt installs it again" apt install "/srv/later/*.deb"
check "apt purges the packages" apt purge aftd aftd-models
list >"$work/after"
# What lies there now and did not before, and belongs neither to the libraries, which stay, nor to the accounts.
left() {
    sed -E 's,^/(bin|sbin|lib[0-9]*)/,/usr/&,; s,//,/,' "$root"/var/lib/dpkg/info/*.list | sort -u >"$work/owned"
    comm -13 "$work/before" "$work/after" | comm -23 - "$work/owned" |
        grep -vE '^/etc/((passwd|group|shadow|gshadow|subuid|subgid)-?|ld.so.cache|alternatives/.*)$|^/run/adduser$'
    comm -13 "$work/before" "$work/after" | grep aft
    find "$root" -xdev -uid "$(run id -u aftd)" -printf '/%P\n'
}
remains=$(left)
check "nothing of them is left" empty "$remains"
check "the user stays, so that nobody else gets its files" run getent passwd aftd

echo "---- under systemd"
check "apt installs systemd" apt install systemd
package_root() {
    mount --bind "$root" "$1"
    rm -f "$1"/etc/systemd/system/timers.target.wants/* # nothing else shall call apt
}
export -f package_root
boot package_root || {
    echo "skipped: $why"
    end
}
there=within
list >"$work/before"
url=http://127.0.0.1:8080
get() { nsenter -t "$one" --net curl -sS -m 30 "$@"; } # this machine's curl, in their network
states() { within systemctl is-active "$@" | sort -u; }
check "apt installs the packages again" apt install "/srv/debs/*.deb"
check "that starts nothing" is "$(states aftd aftd.socket aftd-admin.socket)" inactive
sed 's/"listen_port": 8080/"listen_port": 8090/' "$root/etc/aftd/aftd.json" >"$root/etc/aftd/second.json"
sed -i 's/"threads": 0/"threads": 0, "streams_max": 7/' "$root/etc/aftd/aftd.json"
check "its sockets and the daemon are enabled and started" within systemctl enable --now aftd.socket aftd
check "so is another instance" within systemctl enable --now aftd@second
check "it classifies" both '"label":"ship"' "$(get --data-binary @$sample "$url/classify?model=cifar10-aft-conv")"
check "it generates" both '"finish_reason":"length"' "$(get -d '{"prompt": "The ", "max_tokens": 9}' $url/generate)"

# Clients that keep their connections, and those that come anew for each request and must never be refused.
load() { # load NAME OPTION...
    nsenter -t "$one" --net chroot "$builder" sh -c \
        "cd /srv/aftd && exec /srv/a/aftd-*/build/aft load $url ${*:2} --concurrency 4 --duration 600 --json" \
        >"$work/load-$1.json" 2>&1 &
    background+=($!)
}
background=()
load texts --max-tokens 50
load pictures "$sample"
newcomers() {
    while :; do get -o /dev/null -w '%{http_code}\n' -d '{"prompt": "A", "max_tokens": 1}' $url/generate; done
}
newcomers >"$work/newcomers" 2>&1 &
background+=($!)
stop_clients() {
    kill "${background[@]}"
    wait "${background[@]}" 2>/dev/null
    background=()
}
sleep 2
replaced() { # replaced VERSION FLAGS: by the packages in /srv/VERSION
    local version socket
    socket=$(within systemctl show -p SubState -p ActiveEnterTimestamp aftd.socket)
    check "apt installs what is $1" apt ${2:-} install "/srv/$1/*.deb"
    version=$(within dpkg-query -W -f '${Version}' aftd)
    check "its version answers" both "\"version\":\"$version\"" "$(get $url/v2)"
    check "so does that of the other instance" both "\"version\":\"$version\"" "$(get http://127.0.0.1:8090/v2)"
    check "the socket has stayed open" is "$(within systemctl show -p SubState -p ActiveEnterTimestamp aftd.socket)" \
        "$socket"
    check "with the edited configuration" shows aftd StatusText ' of 14 stream slots' # 7 of each model that has them
    sleep 2
}
replaced later
replaced debs --allow-downgrades
stop_clients
all_answered() {
    python3 -c 'import json, sys
for name in sys.argv[1:]:
    counts = {key: json.load(open(name))[key] for key in ("answered", "failed", "failures")}
    print(name, counts)
    assert counts["answered"] > 0 and counts["failed"] == 0' "$work"/load-*.json
}
all_answered 2>/dev/null
echo "new connections, by status: $(sort "$work/newcomers" | uniq -c | tr -s ' \n' ' ')"
check "no request of clients that stay failed" all_answered
check "no request of new clients failed" is "$(sort -u "$work/newcomers")" 200
check "systemctl finds all well" within systemctl status aftd aftd@second aftd.socket
# A root without a kernel's modules has others that fail: systemd-modules-load, on Debian 13.
check "nothing of it has failed" empty "$(within systemctl list-units --failed --plain --no-legend 'aftd*')"

# Clients go on asking, so that a socket that is closed too late starts the daemon again.
newcomers >/dev/null 2>&1 &
background=($!)
check "apt removes the packages that run" apt remove aftd aftd-models
stop_clients
check "nothing of them runs" is "$(states aftd aftd@second aftd.socket aftd-admin.socket)" inactive
check "no process has stayed" empty "$(within find /proc -maxdepth 1 -user aftd)"
check "the socket is closed, and a connection refused" is "$(get $url/readyz 2>/dev/null || echo $?)" 7
check "apt installs them once more" apt install "/srv/later/*.deb"
check "what is enabled runs" is "$(states aftd aftd.socket)" active
check "the daemon has the socket" shows aftd.socket SubState running
check "and serves" both '"status":"ready"' "$(get $url/readyz)"
check "apt purges what runs" apt purge aftd aftd-models
list >"$work/after"
remains=$(left)
check "nothing of them is left then either" empty "$remains"
end
