"""Write the bill of materials of this image as CycloneDX JSON: Python packages, Debian packages, the interpreter.

Needs cyclonedx-bom in the Python that runs it; the sbom stages of the Dockerfile provide it.
"""

import json
import platform
import subprocess
import sys
from typing import Any
from urllib.parse import quote

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

PYTHON = "/opt/tlm/bin/python3"


def main(name: str) -> None:
    """Write the bill of materials of the image `name` to stdout."""
    bill = python_packages()
    bill["metadata"]["component"] = {"type": "container", "bom-ref": name, "name": name}
    bill["components"] += [interpreter(), *debian_packages()]
    text = json.dumps(bill, indent=1, sort_keys=True)
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault:
        sys.exit(f"not a valid CycloneDX document: {fault}")
    print(text)


def python_packages() -> dict[str, Any]:
    """The Python packages of the virtual environment, as a CycloneDX document."""
    options = ["--output-reproducible", "--output-format", "JSON", "--spec-version", "1.6"]
    command = [sys.executable, "-m", "cyclonedx_py", "environment", *options, PYTHON]
    bill: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return bill


def interpreter() -> dict[str, str]:
    """The Python interpreter, which may not be a Debian package."""
    return _component("application", "python", platform.python_version(), "pkg:generic/python@{version}")


def debian_packages() -> list[dict[str, str]]:
    """The installed Debian packages."""
    form = "${Package}\t${Version}\t${Architecture}\t${Status}\n"
    listed = subprocess.run(["dpkg-query", "-W", "-f", form], check=True, capture_output=True, text=True).stdout
    rows = (line.split("\t") for line in listed.splitlines())
    return [
        _component("library", name, version, f"pkg:deb/debian/{name}@{{version}}?arch={architecture}")
        for name, version, architecture, status in rows
        if status.endswith(" installed")
    ]


def _component(kind: str, name: str, version: str, purl: str) -> dict[str, str]:
    purl = purl.format(version=quote(version, safe="~"))
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    main(sys.argv[1])
