"""`python -m research COMMAND`: the commands of the studies, made as those of `tlm` are."""

import sys

from tlm.cli.main import build, main

STUDIES = {  # name: (module:function, summary)
    "compute": ("research.compute:compute", "Draw a report's scores against compute, beside the paper's"),
    "dilute": ("research.dilute:dilute", "Make a corpus with less text on a topic"),
    "debtags": ("research.debtags:debtags", "Make a task of several labels a text of Debian's package index"),
    "long-texts": ("research.long_texts:long_texts", "Make a task of long texts of the kernel's documentation"),
    "fewer-labels": ("research.fewer_labels:fewer_labels", "Make the same task with fewer labels"),
    "labels-saved": ("research.labelling:labels_saved", "Simulate `label-next`: macro-F1 by number of labels"),
    "labels-found": ("research.labelling:labels_found", "Change labels at random, and count how many are found"),
    "few-labels": ("research.labelling:few_labels", "Score models of few labels, to compare `label-names` with"),
    "levers": ("research.levers:levers", "Score changes of the recipe on dev, with the same seeds"),
    "minutes": ("research.minutes:minutes", "Draw the scores of finished models against their CPU minutes"),
    "worlds": ("research.worlds:worlds", "Test intervals and recommendations in worlds whose truth is known"),
    "merge-subsets": ("research.multitask.merge:merge_subsets", "Merge the subsets of several tasks"),
    "train-multitask": ("research.multitask.train:train_multitask", "Stage 1 for several tasks, with a head for each"),
    "rerank": ("research.rerank.rerank:rerank", "Choose passages by their influence on a trained model"),
    "report-multitask": ("research.multitask.report:report_multitask", "Compare tasks, alone and together"),
    "retrieval-study": ("research.retrieval.step:retrieval_study", "Compare subsets: overlap, sources, words"),
    "attention": ("research.attention.step:attention", "Compare what the attention heads of models look at"),
    "heads": ("research.attention.heads:heads", "Cut attention heads out of a model: score and speed by their number"),
    "paper": ("research.paper.command:paper", "Compare your runs with the paper's tables"),
    "gpu": ("research.gpu.command:gpu", "Measure on a GPU, in pieces of minutes"),
    "gpu-pack": ("research.gpu.pack:gpu_pack", "Make the data that `gpu` carries to a GPU"),
    "keep": ("research.paper.keep:keep", "Save finished runs as results of the paper's tables"),
}
HELP = "Check the paper's tables, and study what was retrieved and trained."

if __name__ == "__main__":
    main(lambda: build(sys.argv[1:], STUDIES, HELP)())
