# boot.sh: a systemd of one's own, as process 1 of new namespaces in a root of one's choice, with a network that has the
# loopback interface alone; and what tests ask of it. Sourced by booted.sh and package.sh. Needs root.

# boot FUNCTION: boots the root that FUNCTION mounts at $1, in a mount namespace that ends with it; the function and the
# variables that it uses are exported. Otherwise `why` says why this cannot be done here. `one` is its process 1.
boot() {
    local state
    why=
    boot_dir=$(mktemp -d) || exit 1
    mkdir "$boot_dir/root" "$boot_dir/groups"
    export -f boot_group boot_apart boot_within
    unshare --pid --fork --kill-child --mount --uts --ipc --net \
        bash -c 'boot_apart "$@"' bash "$1" "$boot_dir" >"$boot_dir/said" 2>&1 &
    boot_outside=$!
    for _ in $(seq 300); do
        one=$(pgrep -P "$boot_outside")
        state=$([ -n "$one" ] && within systemctl is-system-running 2>/dev/null)
        case $state in running | degraded) return 0 ;; esac
        kill -0 "$boot_outside" 2>/dev/null || break
        sleep 0.1
    done
    why="systemd does not come up in namespaces here: $(tail -n 1 "$boot_dir/said")"
    shut
    return 1
}
shut() { # ends it, with all that runs in it
    [ -n "${boot_outside:-}" ] || return 0
    kill -KILL "$boot_outside" 2>/dev/null
    wait "$boot_outside" 2>/dev/null
    unshare --mount bash -c 'boot_group "$1" &&
        for _ in {1..50}; do find "$group" -depth -type d -exec rmdir {} + && break; sleep 0.1; done' \
        bash "$boot_dir" 2>/dev/null
    rm -rf "$boot_dir"
    boot_outside=
}
boot_group() { # boot_group DIR: in a mount namespace, `group` is a control group named like DIR
    mount -t cgroup2 cgroup2 "$1/groups"
    group=$1/groups$(sed -n 's/^0:://p' /proc/self/cgroup)/${1##*/}
}
boot_apart() { # boot_apart FUNCTION DIR: the first process; its control group is its own, for systemds cannot share one
    set -e
    boot_group "$2"
    mkdir "$group"
    echo 0 >"$group/cgroup.procs"
    exec unshare --cgroup bash -c 'boot_within "$@"' bash "$1" "$2/root"
}
boot_within() { # boot_within FUNCTION ROOT: then, with all namespaces
    local place device
    set -e
    mount --make-rprivate /
    "$1" "$2"
    cd "$2"
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    for place in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$place"; done
    chmod 1777 tmp
    for device in null zero full random urandom tty; do
        : >"dev/$device"
        mount --bind "/dev/$device" "dev/$device"
    done
    mkdir dev/shm dev/pts
    mount -t devpts -o newinstance devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    ip link set lo up 2>/dev/null || true
    echo 0123456789abcdef0123456789abcdef >etc/machine-id
    # Not chroot, in which no process may make the user namespaces of PrivateUsers=. The old root lies above the new one
    # until it is taken away.
    pivot_root . .
    umount -l .
    cd /
    mount --make-rshared / # as nspawn and boot do: credentials are mounted by a child
    exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=basic.target
}

within() { # within COMMAND...: in there, with nothing of the environment here
    timeout 120 nsenter -t "$one" --all --root \
        env -i -C / HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
property() { within systemctl show -p "$2" --value "$1"; } # property UNIT NAME
says() {                                                   # says TEXT COMMAND...: what the command writes has that text
    local text=$1
    shift
    "$@" | tee /dev/stderr | grep -qF -- "$text"
}
shows() { says "$3" property "$1" "$2"; } # shows UNIT PROPERTY TEXT
is() { [ "$1" = "$2" ] || { echo "it is $1, expected $2"; return 1; }; }
await() { # await COMMAND...: it succeeds within 20 seconds
    local end=$((SECONDS + 20))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}
