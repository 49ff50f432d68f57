#!/bin/sh
# sysroot.sh DIR PACKAGE...: Debian's arm64 packages and what they depend on, unpacked in DIR: headers and libraries to
# build and run arm64 programs with on another machine. apt-get works on lists and a state of its own, so that the
# machine keeps its one architecture and nobody needs to be root. Nothing is done where DIR has the packages already.
# DIR has a database of dpkg's too, for what makes packages (deploy/deb.sh): it lists files by where they lie here.
set -eu
dir=$1
shift
wanted="$(realpath -m "$dir"): $*" # links and lists in it are of this place
if [ -f "$dir/.packages" ] && [ "$(cat "$dir/.packages")" = "$wanted" ]; then
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
root=$(cd "$dir" && pwd) database=$dir/var/lib/dpkg
mkdir -p "$database/info" "$apt/control"
echo 1 >"$database/info/format"
for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$dir"
    rm -rf "$apt/control"
    dpkg-deb -e "$package" "$apt/control"
    name=$(dpkg-deb -f "$package" Package)
    sed '/^Package:/a Status: install ok installed' "$apt/control/control" >>"$database/status"
    echo >>"$database/status"
    if grep -q '^Multi-Arch: same' "$apt/control/control"; then
        name=$name:arm64
    fi
    dpkg-deb --fsys-tarfile "$package" | tar -t | sed "s|^\.|$root|; s|/\$||" >"$database/info/$name.list"
    for part in shlibs symbols; do
        cp "$apt/control/$part" "$database/info/$name.$part" 2>/dev/null || :
    done
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
echo "$wanted" >"$dir/.packages"
