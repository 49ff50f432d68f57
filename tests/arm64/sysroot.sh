#!/bin/sh
# sysroot.sh DIR PACKAGE...: Debian's arm64 packages and what they depend on, unpacked in DIR: headers and libraries to
# build and run arm64 programs with on another machine. apt-get works on lists and a state of its own, so that the
# machine keeps its one architecture and nobody needs to be root. Nothing is done where DIR has the packages already.
set -eu
dir=$1
shift
if [ -f "$dir/.packages" ] && [ "$(cat "$dir/.packages")" = "$*" ]; then
    exit 0
fi
rm -rf "$dir"
mkdir -p "$dir.apt/lists/partial" "$dir.apt/cache/archives/partial" "$dir"
apt=$(cd "$dir.apt" && pwd)
: >"$apt/status" # nothing is installed: all dependencies come along
run() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        -o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
        -o APT::Install-Recommends=false -o APT::Sandbox::User= -o Debug::NoLocking=true "$@" >"$apt/log" 2>&1 ||
        { cat "$apt/log"; exit 1; }
}
echo "unpacking arm64 packages in $dir"
run update
run --download-only install "$@"
for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$dir"
done
# What their installation would have done: links point into the folder, and OpenBLAS is the one that is asked for.
find "$dir" -type l -lname '/*' | while read -r link; do
    ln -sfr "$dir$(readlink "$link")" "$link"
done
for part in lib include; do
    folder=$dir/usr/$part/aarch64-linux-gnu
    ln -srf -t "$folder" "$folder"/openblas-openmp/lib*.so* "$folder"/openblas-openmp/*.h 2>/dev/null || :
done
rm -rf "$apt"
echo "$*" >"$dir/.packages"
