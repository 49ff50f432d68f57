# bare_root.sh: a fresh Debian root in build/, and running things in it; sourced by scripts here and in deploy/, in the
# repository's root, with `target` set to what they are called. SUITE is which Debian: bookworm (12) or trixie (13). Needs
# root, debootstrap and Debian's mirror. What debootstrap downloaded stays in build/bare-cache for the next time. The root
# shares the machine's network.
suite=${SUITE:-bookworm}
cache=$PWD/build/bare-cache/$suite

missing() {
    echo "$target cannot run here: $1"
    exit 1
}

bare_needs() { # what bare_root does not find out for itself
    [ "$(id -u)" = 0 ] || missing "it needs root, for chroot"
    command -v debootstrap >/dev/null || missing "debootstrap is not installed: make deps-bare"
    command -v curl >/dev/null || missing "curl is not installed: make deps-bare"
    unshare --mount --pid --fork true 2>/dev/null ||
        missing "the kernel does not let this user unshare mounts and processes"
}

bare_root() { # bare_root NAME PACKAGES: build/NAME with the packages that Debian always has, and these (A,B)
    local architecture mirror
    root=$PWD/build/$1
    architecture=$(dpkg --print-architecture)
    # The mirror that this machine itself uses, of whichever Debian; else Debian's own.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 2>/dev/null | head -n 1)
    mirror=${mirror:-http://deb.debian.org/debian}
    set -- "$1" --variant=minbase --include="$2" --arch="$architecture"
    mkdir -p "$cache" || exit 1
    rm -rf "$root"
    if ! [ -f "$cache/$1.tar" ]; then
        debootstrap "${@:2}" --make-tarball="$cache/$1.tar.new" "$suite" "$cache/$1.root" "$mirror" \
            >"$cache/$1.log" 2>&1 ||
            { tail -n 20 "$cache/$1.log"; missing "debootstrap could not fetch its packages from $mirror"; }
        mv "$cache/$1.tar.new" "$cache/$1.tar"
        rm -rf "$cache/$1.root"
    fi
    debootstrap "${@:2}" --unpack-tarball="$cache/$1.tar" "$suite" "$root" "$mirror" >"$cache/$1.log" 2>&1 ||
        { tail -n 20 "$cache/$1.log"; missing "debootstrap could not unpack its packages"; }
    # How this machine reaches the mirror.
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null
    return 0
}

# Everything that is started in there ends with its first process, and its mounts with it; that one ends with this shell's
# parent, however that is ended.
inside() { # inside FOLDER COMMAND...: in the root, in the place of this shell, with nothing of its environment
    exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child -- bash -c '
        root=$1 folder=$2
        shift 2
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
            mount -t tmpfs tmpfs "$root/tmp" || exit 1
        exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            bash -c "cd \"\$0\" && exec \"\$@\"" "$folder" "$@"' bash "$root" "$@"
}
