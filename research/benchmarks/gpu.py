"""Correctness and quality on a GPU: a row that `python -m research gpu` fills, piece by piece."""

from research.benchmarks.row import NotMeasured, Result, Row


def run(quick: bool) -> list[Result]:
    """Not measured here."""
    raise NotMeasured("run `python -m research gpu` on a machine with a GPU")


ROW = Row(
    name="gpu",
    stage="correctness, habits and quality on one GPU",
    against="the CPU; the same step without each habit",
    target="losses within 0.01 nats of the CPU's in fp32, 0.05 in bf16",
    what="`python -m research gpu`, in pieces. Losses of 50 steps beside those of the CPU, of a second run, of a run "
    "that was resumed, and in bf16. Our step beside the same one without each habit that a GPU has, and with levers "
    "that are not taken yet. Then scores: `mini` on SciERC, MiniLM-L6 (weights rounded to bf16) on SciERC and ACL-ARC, "
    "all seeds of random text with one draw; three trainings share the GPU. Last, how far `small-scierc` comes, with "
    "the tokenizer and the text of `mini`.",
    run=run,
    command="python -m research gpu",
)
