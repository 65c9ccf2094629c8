"""Keep a report's numbers, without any text of corpus or task, as a result file to commit.

python -m benchmarks.keep_result REPORT_URI docs/results/NAME.json
"""

import json
import sys
from pathlib import Path

from tlm.artifacts.artifact import Artifact

NUMBERS = ("task", "findings", "groups", "classes", "confusion", "metric_names", "lineage")


def main() -> None:
    uri, target = sys.argv[1:]
    report = json.loads(Artifact.open(uri, "report").path("report.json").read_text(encoding="utf-8"))
    kept = {name: report[name] for name in NUMBERS}
    Path(target).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
