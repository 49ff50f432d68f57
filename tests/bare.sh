#!/usr/bin/env bash
# bare.sh: what the README promises, where nothing else is: in a fresh Debian 12 root with git, gcc and make alone, clone
# the last commit, `make run` and ask it for a label and a text, then `make test`. Ends with the tests' own line
# "N passed, N failed". Needs root, debootstrap and Debian's mirror; says what is missing. The root lies in build/bare and
# goes in the end; what debootstrap downloaded stays in build/bare-cache for the next time.
# The root shares the machine's network, so port 8080 must be free.
set -u
cd "$(dirname "$0")/.." || exit 1
missing() {
    echo "test-bare cannot run here: $1"
    exit 1
}
[ "$(id -u)" = 0 ] || missing "it needs root, for chroot"
command -v debootstrap >/dev/null || missing "debootstrap is not installed: make deps-bare"
command -v curl >/dev/null || missing "curl is not installed: make deps-bare"
unshare --mount --pid --fork true 2>/dev/null || missing "the kernel does not let this user unshare mounts and processes"
curl -s -o /dev/null http://127.0.0.1:8080/ && missing "port 8080 is taken, which make run needs"

suite=bookworm
architecture=$(dpkg --print-architecture)
# The mirror that this machine itself uses; else Debian's own.
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" 2>/dev/null | head -n 1)
mirror=${mirror:-http://deb.debian.org/debian}
root=$PWD/build/bare cache=$PWD/build/bare-cache
mkdir -p "$cache" || exit 1
rm -rf "$root"

echo "---- a bare $suite root"
if ! [ -f "$cache/packages.tar" ]; then
    debootstrap --variant=minbase --include=git,gcc,make,ca-certificates --arch="$architecture" \
        --make-tarball="$cache/packages.tar.new" "$suite" "$cache/root" "$mirror" >"$cache/log" 2>&1 ||
        { tail -n 20 "$cache/log"; missing "debootstrap could not fetch its packages from $mirror"; }
    mv "$cache/packages.tar.new" "$cache/packages.tar"
    rm -rf "$cache/root"
fi
debootstrap --variant=minbase --include=git,gcc,make,ca-certificates --arch="$architecture" \
    --unpack-tarball="$cache/packages.tar" "$suite" "$root" "$mirror" >"$cache/log" 2>&1 ||
    { tail -n 20 "$cache/log"; missing "debootstrap could not unpack its packages"; }
# How this machine reaches the mirror.
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null
git clone -q --no-hardlinks . "$root/srv/aftd" || exit 1

# Everything that is started in there ends with its first process, and its mounts with it.
inside() { # inside COMMAND...: in the root, in the place of this shell, with nothing of its environment
    exec unshare --mount --pid --fork --kill-child -- bash -c '
        root=$1
        shift
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
            mount -t tmpfs tmpfs "$root/tmp" || exit 1
        exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            bash -c "cd /srv/aftd && exec \"\$@\"" bash "$@"' bash "$root" "$@"
}

echo "---- make run"
inside make run >"$cache/run.log" 2>&1 &
run=$!
trap 'kill -KILL "$run" 2>/dev/null; wait "$run" 2>/dev/null; rm -rf "$root"' EXIT
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
if ! [[ $label = *'"label":"ship"'* && $text = *'"finish_reason":"length"'* ]]; then
    tail -n 40 "$cache/run.log"
    echo "make run does not answer as the README says"
    exit 1
fi
kill -KILL "$run" # unshare does not heed TERM; its child ends with it
wait "$run" 2>/dev/null

echo "---- make test"
(inside make test)
