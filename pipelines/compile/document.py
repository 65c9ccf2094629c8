"""Write the pipeline's table of parameters anew, between its marks: ``python -m pipelines.compile.document FILE…``."""

import sys
from pathlib import Path

from pipelines.describe import replaced
from pipelines.tlm import tlm

if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(replaced(page.read_text(encoding="utf-8"), tlm.pipeline_func), encoding="utf-8")
