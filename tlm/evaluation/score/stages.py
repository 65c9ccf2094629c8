"""The stages that a model was trained in, of which its metrics tell the cost."""

from tlm.artifacts.artifact import Artifact


def stages_of(trained: Artifact) -> dict[str, Artifact]:
    """The artifact of each stage by name, in order; the last stage is that of `trained` itself.

    Before a student's own stages stand those of its teacher, each once; one that both share is the student's.
    """
    if "converted" in trained.manifest.inputs:
        return stages_of(trained.input("converted"))
    if trained.manifest.kind == "checkpoint":
        return {"stage 1": trained}
    if "stage" in trained.details:
        return {str(trained.details["stage"]): trained}
    start = trained.input("checkpoint")
    if "teacher" not in trained.manifest.inputs:
        return {"stage 1": start, "stage 2": trained}
    taught: dict[str, Artifact] = {}
    for name, stage in _with_members(trained.input("teacher")).items():
        if stage.manifest.key not in {one.manifest.key for one in (start, *taught.values())}:
            taught[f"teacher, {name}"] = stage
    return {**taught, "stage 1": start, "distillation": trained}


def _with_members(trained: Artifact) -> dict[str, Artifact]:
    """The stages of a model; of a mixture, those of each member, with its arm in front. Equal names are numbered.

    Names have no seeds, so that those of a report's group are the same for all of its runs.
    """
    if "converted" in trained.manifest.inputs:
        return _with_members(trained.input("converted"))
    members = [trained.input(name) for name in trained.manifest.inputs if name.startswith("metrics-")]
    found = {} if members else stages_of(trained)
    for member in members:
        model = next(member.input(name) for name in ("model", "checkpoint") if name in member.manifest.inputs)
        for name, stage in _with_members(model).items():
            named, number = f"{member.details['arm']}, {name}", 1
            while (key := named if number == 1 else f"{named} ({number})") in found:
                number += 1
            found[key] = stage
    return found
