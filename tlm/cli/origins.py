"""The commands `explain` and `provenance`: why a model answers as it does, and what an artifact was made from."""

import sys
from pathlib import Path

from tlm.artifacts.artifact import Artifact
from tlm.cli.command import Answer
from tlm.errors import InputError
from tlm.evaluation.origins import provenance as origins
from tlm.evaluation.pages.plain import terminal
from tlm.evaluation.pages.render import write_pages
from tlm.evaluation.report.lineage import Lineage
from tlm.progress import say


def explain(model: str, text: str, *, pair: str = "", label: str = "", top: int = 10, device: str = "auto") -> Answer:
    """Say why a model answers a text as it does: what decided, the nearest training texts, passages it learned from.

    Of linear and static models, the numbers of words and n-grams are exact: with the bias they add up to the logit of
    the class. Of a mixture, each part says what it adds to the answer; of several seeds, the first is explained. For
    encoders, the gradient times the input of each token is a hint only; so is, for ONNX models and published
    embeddings, the change when a word is left out. As JSON: all features, not only the first.

    Args:
        model: URI of a model, checkpoint, metrics or report, or a model folder (which does not know its texts).
        text: The text.
        pair: The second text, for a task on pairs.
        label: The class to explain; by default the likeliest.
        top: How many features, training texts and passages to show.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
    """
    if top < 1 or not text.strip():
        raise InputError(f"top is {top} and the text has {len(text.split())} words; expected 1 or more of both")
    from tlm.evaluation.origins.answer import blocks, explained

    found = explained(model, text, pair or None, label, top, device)
    return Answer(terminal(blocks(found, top), styled=sys.stdout.isatty()).strip("\n"), found)


def provenance(artifact: str, *, to: str = "") -> Answer:
    """List what a model, subset or corpus was made from: sources with licences, files, and what was left out and why.

    With ``--to``, it writes provenance.html, provenance.md, provenance.json and, if cyclonedx-python-lib is installed,
    the bill of materials as bom.cdx.json (CycloneDX 1.6). Licences come from the field that ``--license-field`` names.

    Args:
        artifact: URI of a corpus, subset, checkpoint or model, or of metrics.
        to: Folder to write to; created if necessary.
    """
    subject, lineage = Artifact.open(artifact, "corpus", "subset", "checkpoint", "model", "metrics"), Lineage()
    every = lineage.everything([subject])
    found = origins.contents(subject, every, lineage)
    page = list(origins.blocks(found))
    if to:
        Path(to).mkdir(parents=True, exist_ok=True)
        write_pages(Path(to), "provenance", subject.folder_name, page, found)
        try:
            from tlm.evaluation.origins.bom import bill
        except ImportError:
            say("provenance: no bom.cdx.json: it needs cyclonedx-python-lib; pip install 'tlm-kubeflow[bom]'")
        else:
            (Path(to) / "bom.cdx.json").write_text(bill(subject, every, found), encoding="utf-8", newline="\n")
    return Answer(terminal(page, styled=sys.stdout.isatty()).strip("\n"), found)
