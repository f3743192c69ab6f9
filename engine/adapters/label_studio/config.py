"""The label config: what a person sees and can draw, made from the ontology's heads."""

from __future__ import annotations

import hashlib
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from engine.adapters.label_studio.codecs.regions import IGNORE_LABEL, PICTURE
from engine.adapters.label_studio.results import CODECS, NOT_ANSWERED, UNUSABLE, UNUSABLE_CHOICE
from engine.domain.ontology import Head, Ontology
from engine.ports import LabelToolRefused

# The label tool's own limits on a project's title.
TITLE_MIN, TITLE_MAX = 3, 50

INSTRUCTION = """<p>The line above the picture names the <b>heads</b> that are wanted. Look for all their classes.</p>
<ul><li><b>Submit</b> says that the wanted heads are done. Nothing drawn for one of them means: there is none.</li>
<li>Mark a head under <b>not answered</b> if you can't tell, or did not look for it.</li>
<li>Mark the picture as <b>unusable</b> if nothing can be labelled in it (black, corrupt, covered lens).</li>
<li>Draw <b>(ignore)</b> over what nobody can tell.</li>
<li><b>Skip</b> says nothing about the picture; somebody may be asked again.</li></ul>"""


def label_config(ontology: Ontology) -> str:
    """The config's XML: one control per head that people label, named after it. Raises LabelToolRefused.

    A submitted annotation answers all the heads that its task wants, so that the labeler's usual way is to draw and
    submit; two choices say otherwise: heads that were not answered, and a picture that is of no use.
    """
    if not ontology.person_heads:
        raise LabelToolRefused(f"ontology {ontology.name!r} v{ontology.version} has no head that a person labels")
    view = Element("View")
    SubElement(view, "Header", {"value": "$wanted", "size": "4"})
    SubElement(view, "Header", {"value": "$reason", "size": "6"})
    SubElement(
        view,
        "Image",
        {"name": PICTURE, "value": "$image", "zoom": "true", "zoomControl": "true", "rotateControl": "false"},
    )
    for head in ontology.person_heads:
        _check_classes(head)
        group = SubElement(view, "View")
        SubElement(group, "Header", {"value": head.name, "size": "6"})
        group.append(CODECS[head.kind].control(head))
    group = SubElement(view, "View")
    SubElement(group, "Header", {"value": "not answered", "size": "6"})
    choices = {"toName": PICTURE, "showInline": "true"}
    doubtful = SubElement(group, "Choices", {"name": NOT_ANSWERED, "choice": "multiple", **choices})
    for head in ontology.person_heads:
        SubElement(doubtful, "Choice", {"value": head.name})
    SubElement(group, "Header", {"value": "the whole picture", "size": "6"})
    whole = SubElement(group, "Choices", {"name": UNUSABLE, "choice": "multiple", **choices})
    SubElement(whole, "Choice", {"value": UNUSABLE_CHOICE})
    indent(view)
    return tostring(view, encoding="unicode")


def project_title(prefix: str, ontology: Ontology) -> str:
    """The tool project's title, the same for the same prefix, ontology name and version, within the tool's limits."""
    title = " ".join(f"{prefix} {ontology.name} v{ontology.version}".split())
    if len(title) > TITLE_MAX:
        title = f"{title[: TITLE_MAX - 9]}-{hashlib.sha256(title.encode()).hexdigest()[:8]}"
    return title.ljust(TITLE_MIN, "-")


def project_description(ontology: Ontology) -> str:
    """Says which ontology the project is for, by the digest that its meaning hangs on."""
    return f"Longtail ontology {ontology.name} v{ontology.version} sha256:{ontology.digest}"


def _check_classes(head: Head) -> None:
    for name in head.classes:
        if name == IGNORE_LABEL:
            raise LabelToolRefused(
                f"head {head.name!r}: {IGNORE_LABEL!r} is the label tool's way to ignore, give the class another name"
            )
        if name.startswith("$") or name != " ".join(name.split()) or not name or not name.isprintable():
            raise LabelToolRefused(
                f"head {head.name!r}: the label tool can't keep the class name {name!r} ($ in front, or odd spaces)"
            )
