"""Print the state after a local run with the same data, parameters and engine: ``python -m k8s.check.expected PARAMS``.

Starts its own Elasticsearch, runs the pipeline on this machine, and prints the state in the format of k8s.check.state.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from k8s.check.state import contents
from tests.servers import servers
from tests.tiny import write_tiny


def main(parameters: str) -> None:
    """Run the pipeline, then print the state as JSON."""
    with tempfile.TemporaryDirectory() as folder, servers.elasticsearch() as url:
        root, data = Path(folder, "artifacts"), Path(folder, "data")
        write_tiny(data)
        here = {"corpus_paths": data / "corpus.jsonl", "task_path": data / "task", "store_root": root}
        changes = ["--set", "registry_address="]  # the model registry knows the cluster's models only
        changes += [part for name, value in here.items() for part in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "pipelines.run", "local", "--params", parameters, *changes]
        environment = {**os.environ, "TLM_ELASTICSEARCH_URL": url}
        subprocess.run(command, env=environment, check=True, stdout=sys.stderr)
        print(json.dumps({"contents": contents(str(root))}, indent=1, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1])
