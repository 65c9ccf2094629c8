"""The pipeline `predict`: a trained model labels files; as a recurring run, what is new since the last one."""

from components import training
from pipelines.form import Parallelism
from pipelines.steps import equip_all, pipeline
from tlm.errors import InputError
from tlm.settings.options import Pods


@pipeline("tlm-predict", "TLM: label new files")
def build(
    machines: Parallelism,
    train: Pods,
    predict_model: str,
    predict_source: str,
    predict_to: str,
    predict_at_least: float = 0.0,
    predict_keep: str = "",
    predict_likeliest: int = 0,
    predict_pair_field: str = "",
    predict_text_field: str = "text",
) -> str:
    """Label the texts of files with a trained model. Repeated, it labels only new files.

    Args:
        predict_model: URI of a report (the model that it recommends), of metrics or of a model.
        predict_source: Files, as a folder or glob, such as s3://bucket/texts/*.parquet (jsonl, csv, tsv, parquet).
        predict_to: Folder of the answers, such as s3://bucket/labels/: one file for each file that is read. A file that
            is already answered there is not predicted again.
        predict_at_least: Probability below which an answer is unsure, which the field `unsure` then says; 0 for none.
        predict_keep: Fields or columns that answers have, too, such as an id, separated by commas.
        predict_likeliest: How many labels have a probability in an answer, the likeliest first; 0: all.
        predict_pair_field: Field or column of the second text, for a task on pairs.
        predict_text_field: Field or column of the text; several, such as subject,body, are joined.
    """
    if machines != Parallelism():
        raise InputError("pipeline 'predict' predicts in one pod; leave --nodes and --data-pods out")
    texts = {"text_field": predict_text_field, "pair_field": predict_pair_field, "keep": predict_keep}
    where = {"model": predict_model, "source": predict_source, "to": predict_to}
    how = {"at_least": predict_at_least, "likeliest": predict_likeliest, "gpus": train.gpus}
    made = training.predict(**where, **texts, **how).output
    equip_all(train)
    return made
