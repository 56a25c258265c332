#!/usr/bin/env python3
"""Prints the software bill of materials of the programs, as CycloneDX 1.5 (ECMA-424): the crates that cargo links into
them on x86-64 Linux, with versions, licences and the checksums of Cargo.lock. Crates for builds and tests, and
procedural macros, are left out.

usage: packaging/sbom.py VERSION REVISION
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"ibtap", "tools", "ibtap-em", "ibtap-fs"}


def metadata():
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def reference(package):
    """The name of a package inside the document."""
    return f"{package['name']}@{package['version']}"


def linked(nodes, macros, wanted):
    """The ids of packages that these packages link, with the ids of what each uses."""
    found = {}
    waiting = list(wanted)
    while waiting:
        package = waiting.pop()
        if package in found:
            continue
        uses = [
            used["pkg"]
            for used in nodes[package]["deps"]
            if used["pkg"] not in macros and any(kind["kind"] is None for kind in used["dep_kinds"])
        ]
        found[package] = uses
        waiting += uses
    return found


def component(package, checksums):
    name, version = package["name"], package["version"]
    described = {
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        # "MIT/Apache-2.0" is the older form of an expression.
        "licenses": [{"expression": (package["license"] or "NOASSERTION").replace("/", " OR ")}],
    }
    checksum = checksums.get((name, version))
    if checksum:
        described["purl"] = f"pkg:cargo/{name}@{version}"
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


def main():
    version, revision = sys.argv[1:]
    cargo = metadata()
    packages = {package["id"]: package for package in cargo["packages"]}
    nodes = {node["id"]: node for node in cargo["resolve"]["nodes"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}
    programs = [member for member in cargo["workspace_members"] if packages[member]["name"] in PROGRAMS]
    macros = {id for id, p in packages.items() if any("proc-macro" in target["kind"] for target in p["targets"])}
    uses = linked(nodes, macros, programs)
    named = {id: reference(package) for id, package in packages.items()}
    print(json.dumps({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "ibtap",
                "name": "ibtap",
                "version": version,
                "properties": [{"name": "git:revision", "value": revision}],
            }
        },
        "components": [component(packages[package], checksums) for package in sorted(uses)],
        "dependencies": [{"ref": "ibtap", "dependsOn": sorted(named[p] for p in programs)}]
        + [{"ref": named[p], "dependsOn": sorted({named[used] for used in uses[p]})} for p in sorted(uses)],
    }, indent=1))


main()
