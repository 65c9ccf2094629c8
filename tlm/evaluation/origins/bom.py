"""The bill of materials of an artifact as CycloneDX JSON (ML-BOM): models, data, sources with licences, raw files.

The library has no fields for model cards and data governance yet, so counts, settings and digests of ours are
properties, whose names begin with ``tlm:``.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion

from tlm.artifacts.artifact import Artifact
from tlm.evaluation.report.lineage import flat, name_of, numbers

VERSION = SchemaVersion.V1_6
TYPES = dict.fromkeys(("checkpoint", "model"), ComponentType.MACHINE_LEARNING_MODEL)
NEVER = "1970-01-01T00:00:00Z"


def bill(subject: Artifact, found: Sequence[Artifact], contents: dict[str, Any]) -> str:
    """Return the bill of `subject`; the same artifact gets the same bytes.

    Args:
        subject: The artifact.
        found: The artifact and all that it was made from.
        contents: What `tlm.evaluation.origins.provenance.contents` returns of it.
    """
    components = {one.folder_name: _artifact(one) for one in found}
    parts = {one.folder_name: _inputs(one, components) for one in found}
    for corpus in contents["corpora"]:
        whole = f"corpus/{corpus['key']}"
        parts[whole] += [_source(f"{whole}#source-{n}", row, corpus) for n, row in enumerate(corpus["sources"])]
    for number, file in enumerate(contents["files"]):
        parts[file["of"]].append(_file(f"{file['of']}#file-{number}", file))
    root, bom = components[subject.folder_name], Bom(serial_number=uuid5(NAMESPACE_URL, subject.content))
    bom.metadata = BomMetaData(component=root, timestamp=datetime.fromisoformat(subject.run().get("started", NEVER)))
    bom.components = set(components.values()).union(*parts.values()) - {root}
    for name, own_parts in parts.items():
        bom.register_dependency(components[name], own_parts)
    return make_outputter(bom, OutputFormat.JSON, VERSION).output_as_string(indent=1) + "\n"


def _inputs(one: Artifact, components: dict[str, Component]) -> list[Component]:
    names = {ref.folder_name for ref in one.manifest.inputs.values()}
    return [component for name, component in components.items() if name in names]


def _artifact(one: Artifact) -> Component:
    manifest = one.manifest
    settings = {f"settings.{name}": value for name, value in flat(manifest.settings) if not name.startswith("files")}
    facts = {"step": f"{manifest.step} v{manifest.version}", "content": manifest.content, "tlm": manifest.tool}
    name, kind = f"{manifest.kind} {name_of(one)}".strip(), TYPES.get(manifest.kind, ComponentType.DATA)
    return _component(one.folder_name, name, kind, facts | numbers(one.counts) | settings, version=manifest.key)


def _source(ref: str, row: dict[str, Any], corpus: dict[str, Any]) -> Component:
    facts = {f"subset/{one['key']}": count for one, count in zip(corpus["subsets"], row["subsets"], strict=True)}
    licences = [LicenseFactory().make_from_string(row["license"])] if row["license"] else []
    return _component(ref, row["source"], ComponentType.DATA, {"passages": row["passages"], **facts}, licenses=licences)


def _file(ref: str, file: dict[str, str]) -> Component:
    known = re.fullmatch("[0-9a-f]{64}", file["digest"])
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=file["digest"])] if known else []
    facts = {name: file[name] for name in ("split", "digest")}
    return _component(ref, file["name"], ComponentType.FILE, facts, hashes=hashes)


def _component(ref: str, name: str, kind: ComponentType, facts: dict[str, Any], **more: Any) -> Component:
    properties = [Property(name=f"tlm:{fact}", value=str(value)) for fact, value in facts.items()]
    return Component(name=name, type=kind, bom_ref=ref, properties=properties, **more)
