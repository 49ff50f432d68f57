#!/bin/sh
# deb.sh FOLDER [SYSROOT]: the Debian packages of the last commit, built in FOLDER from a tree of nothing but that, and
# left there. The repository has debian/ in deploy/; here it goes to its place. With SYSROOT, a folder of unpacked arm64
# packages (tests/arm64/sysroot.sh), the one for arm64: the rules are the same, and only where they find libraries and
# dpkg's database differs. `make deb` calls this; BUILD_PACKAGES is what `make deps` installs.
set -eu
folder=$1 sysroot=${2:+$(realpath "$2")}
for package in ${BUILD_PACKAGES:-}; do
    case $package in
    gcc | libc6-dev | make) ;; # build-essential
    *) sed -n '/^Build-Depends/,/^[A-Z]/p' deploy/debian/control | grep -qw -e "$package" ||
        { echo "deploy/debian/control: Build-Depends has no $package, which make deps installs" >&2; exit 1; } ;;
    esac
done
version=$(dpkg-parsechangelog -l deploy/debian/changelog -S Version)
makefile=$(sed -n 's/^VERSION := //p' Makefile)
if [ "$version" != "$makefile" ]; then
    echo "deploy/debian/changelog begins with version $version, but the Makefile has $makefile" >&2
    exit 1
fi
tree=$folder/aftd-$version
rm -rf "$tree"
mkdir -p "$tree"
git archive HEAD | tar -x -C "$tree"
mv "$tree/deploy/debian" "$tree/debian"
export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-parallel=$(nproc) terse}"
unset MAKEFLAGS MFLAGS MAKEOVERRIDES VARIANT COMMIT # what the make that called this was told is not for the one below
cd "$tree"
if [ -n "$sysroot" ]; then
    # Dependencies for building are those in the folder, of which dpkg does not know. Nothing built can be run here.
    export SYSROOT="$sysroot" CC="aarch64-linux-gnu-gcc --sysroot=$sysroot"
    export DEB_BUILD_OPTIONS="$DEB_BUILD_OPTIONS nocheck"
    dpkg-buildpackage -B -us -uc -aarm64 -Pcross -d
else
    dpkg-buildpackage -b -us -uc --ignore-builtin-builddeps
fi
