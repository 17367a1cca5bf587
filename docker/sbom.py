"""The image's bill of materials as SPDX 2.3 in JSON, from what dpkg knows where the image is built.

It holds: walpost with the checksum of its binary; each Debian package of which files were copied, and which files; each package whose headers
are compiled into walpost; each package of the base image. Versions and sources are Debian's, names are purls. It does not hold licences: those
are in the copyright files that lie beside it, in /usr/share/doc.
"""

import datetime
import hashlib
import json
import re
import subprocess

FIELDS = "${Package} ${Version} ${Architecture} ${source:Package} ${source:Version}"
DISTRIBUTION = "debian-13"


def debian_package(line, role, comment=None):
    name, version, architecture, source, source_version = line.split()
    package = {
        "name": name,
        "SPDXID": spdx_id(name),
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "sourceInfo": f"built from the Debian source package {source} {source_version}",
        "summary": role,
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{quoted(name)}@{quoted(version)}?arch={architecture}&distro={DISTRIBUTION}"}],
    }
    if comment:
        package["comment"] = comment
    return package


def spdx_id(name):
    return "SPDXRef-Package-" + re.sub(r"[^a-zA-Z0-9.-]", "-", name)


def quoted(text):
    return text.replace("+", "%2B").replace(":", "%3A").replace("~", "~")


def installed(name):
    return subprocess.run(["dpkg-query", "-W", "-f", FIELDS, name], check=True, capture_output=True, text=True).stdout


def of_walpost(version, binary):
    return {
        "name": "walpost",
        "SPDXID": spdx_id("walpost"),
        "versionInfo": version,
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(binary.read_bytes()).hexdigest()}],
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "summary": "the program; the checksum is that of /usr/bin/walpost",
        "primaryPackagePurpose": "APPLICATION",
    }


def of_image(version, epoch, binary, copied, base, headers_only):
    """`copied` is {package: files}, `base` has a line of FIELDS for each package of the base image."""
    ours = of_walpost(version, binary)
    linked = [debian_package(installed(name), "files of it are in the image", "files: " + " ".join(files)) for name, files in sorted(copied.items())]
    compiled_in = [debian_package(installed(name), "headers of it are compiled into walpost") for name in sorted(headers_only)]
    of_base = [debian_package(line, "in the base image") for line in sorted(base.splitlines())]
    packages = [ours, *linked, *compiled_in, *of_base]
    content = json.dumps(packages, sort_keys=True).encode()
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", ours)]
    relations += [(ours["SPDXID"], "DYNAMIC_LINK" if package["name"].startswith("lib") else "DEPENDS_ON", package) for package in linked]
    relations += [(ours["SPDXID"], "STATIC_LINK", package) for package in compiled_in]
    relations += [(ours["SPDXID"], "DEPENDS_ON", package) for package in of_base]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"walpost-{version}-image",
        # The content is in the name, so that two different documents never share one.
        "documentNamespace": f"urn:walpost:sbom:{version}:{hashlib.sha256(content).hexdigest()}",
        "creationInfo": {"created": datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: walpost-docker/sbom.py"]},
        "packages": packages,
        "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other["SPDXID"]}
                          for one, kind, other in relations],
    }
    return json.dumps(document, indent=1) + "\n"
