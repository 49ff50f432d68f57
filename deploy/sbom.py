#!/usr/bin/env python3
"""sbom.py [--root DIR] --version V --triplet T PROGRAM...: what the programs link, as CycloneDX JSON.

The libraries that the programs name as needed, each with the Debian package that it comes from, that package's version
and, where its copyright file is machine-readable, its licences. --root is a folder of unpacked packages with dpkg's
database in it, as tests/arm64/sysroot.sh makes; else it is the machine's own. The same programs and packages give the
same bytes.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def needed(program):
    """The sonames that a program asks the loader for. readelf reads programs of all machines."""
    found = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-dW", program))
    if not found:
        sys.exit(f"sbom.py: {program}: readelf finds no needed libraries in it")
    return found


def package_of(soname, root, triplet, database):
    """The package that a library comes from, as dpkg-query names it."""
    for folder in ("lib", "usr/lib"):
        path = root / folder / triplet / soname
        if not path.exists():
            continue
        # Where /lib is a link, a package may have listed the library under either name.
        real = str(path.resolve())
        for name in (real, real.replace("/usr/lib/", "/lib/", 1), str(path)):
            found = run("dpkg-query", *database, "--search", name).split(": ")[0]
            if found:
                return found.split(",")[0]
    sys.exit(f"sbom.py: no package of {root} has {soname}")


def licences(package, root):
    """The short names in a machine-readable copyright file, of its first paragraph of files."""
    try:
        text = (root / "usr/share/doc" / package / "copyright").read_text(errors="replace")
    except OSError:
        return []
    match = text.startswith("Format:") and re.search(r"^Files:\s*\*\s*\n(?:.+\n)*?License:[ \t]*(\S.*)$", text, re.M)
    return [{"license": {"name": match[1].strip()}}] if match else []


def component(package, sonames, root, database):
    fields = "${Package}\\t${Version}\\t${Architecture}\\t${source:Package}\\t${Homepage}"
    found = run("dpkg-query", *database, "-W", "-f", fields, package)
    name, version, architecture, source, homepage = found.split("\t")
    purl = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?arch={architecture}"
    made = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if found := licences(name, root):
        made["licenses"] = found
    if homepage:
        made["externalReferences"] = [{"type": "website", "url": homepage}]
    properties = [("aftd:source-package", source), *(("aftd:soname", soname) for soname in sonames)]
    made["properties"] = [{"name": key, "value": value} for key, value in properties]
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default="/", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--triplet", required=True)
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    root = args.root.resolve()
    database = [] if root == Path("/") else [f"--admindir={root}/var/lib/dpkg"]

    sonames, uses = {}, {}  # by package, by program
    for program in args.programs:
        for soname in needed(program):
            package = package_of(soname, root, args.triplet, database)
            sonames.setdefault(package, set()).add(soname)
            uses.setdefault(os.path.basename(program), set()).add(package)
    parts = {package: component(package, sorted(sonames[package]), root, database) for package in sorted(sonames)}

    metadata = {
        "component": {
            "type": "application",
            "bom-ref": "aftd",
            "name": "aftd",
            "version": args.version,
            "licenses": [{"license": {"id": "MIT"}}],
            "components": [
                {"type": "application", "bom-ref": f"aftd/{name}", "name": name, "version": args.version}
                for name in sorted(uses)
            ],
        }
    }
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        metadata = {"timestamp": datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), **metadata}
    dependencies = [
        {"ref": f"aftd/{name}", "dependsOn": sorted(parts[package]["bom-ref"] for package in packages)}
        for name, packages in sorted(uses.items())
    ]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": metadata,
        "components": list(parts.values()),
        "dependencies": dependencies,
    }
    json.dump(bom, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
