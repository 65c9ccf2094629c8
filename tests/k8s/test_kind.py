"""The parts of k8s/kind and k8s/check that need no cluster: what they upload, see of the store, and compare.

No cluster can be had in tests; .github/workflows/kind.yml runs the scripts themselves.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import boto3
import pytest
import yaml

from k8s.check import compare, data, state
from pipelines.compiled import of_this_code, read_parameters
from tests.k8s import tools
from tests.tiny import write_tiny
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.settings.options import Layout
from tlm.settings.presets import resolve

KIND = tools.ROOT / "k8s/kind"
PARAMETERS = tools.ROOT / "k8s/check/params.yaml"


@pytest.fixture
def run_here(tmp_path):
    """Makes the first artifacts of a run under a fresh root."""
    write_tiny(tmp_path / "data")

    def run(name):
        root = str(tmp_path / name)
        load_corpus([str(tmp_path / "data/corpus.jsonl")], layout=Layout(source_field="source"), root=root)
        load_task(str(tmp_path / "data/task"), root=root)
        return root

    return run


def seen(root):
    return json.loads(json.dumps({"contents": state.contents(root), "files": state.files(root)}))


def test_what_goes_into_the_bucket_is_what_the_parameters_read(s3_root, tmp_path):
    bucket = s3_root.split("/")[2]
    for _ in range(2):
        data.main(bucket)
    names = {found["Key"] for found in boto3.client("s3").list_objects_v2(Bucket=bucket)["Contents"]}
    assert names == {"corpus/corpus.jsonl", "task/train.jsonl", "task/dev.jsonl", "task/test.jsonl"}
    values = yaml.safe_load(PARAMETERS.read_text())
    assert (values["corpus_paths"], values["task_path"]) == ("s3://tlm/corpus/", "s3://tlm/task/")


def test_runs_of_the_same_data_are_equal_on_s3_and_here(s3_root, run_here, tmp_path):
    here = run_here("here")
    load_corpus([str(tmp_path / "data/corpus.jsonl")], layout=Layout(source_field="source"), root=s3_root)
    load_task(str(tmp_path / "data/task"), root=s3_root)
    local, cluster = seen(here), seen(s3_root)
    assert len(local["contents"]) == 2
    assert [line for line in compare.data(local, cluster) if "there is no" not in line] == []
    assert "there is no subset" in compare.data(local, cluster)


def test_other_content_and_missing_artifacts_are_differences(run_here):
    expected = seen(run_here("here"))
    corpus = next(name for name in expected["contents"] if name.startswith("corpus/"))
    changed = {"contents": {**expected["contents"], corpus: "other"}}
    assert any(line.startswith(f"{corpus}: ") and line.endswith("→ other") for line in compare.data(expected, changed))
    lost = {"contents": {name: value for name, value in expected["contents"].items() if name != corpus}}
    assert {"there is no corpus", f"{corpus}: {expected['contents'][corpus]} → nothing"} <= set(
        compare.data(expected, lost)
    )


def test_a_repetition_writes_nothing_and_what_is_written_is_seen(run_here, tmp_path):
    root = run_here("here")
    before = seen(root)
    for noted in (tmp_path / "here").rglob("used.json"):  # as after more than an hour
        noted.unlink()
    assert compare.nothing_written(before, seen(run_here("here"))) == []
    (tmp_path / "here/report").mkdir()
    (tmp_path / "here/report/new").write_text("")
    run_file = next((tmp_path / "here").rglob("run.json"))
    run_file.write_bytes(run_file.read_bytes())
    changed = compare.nothing_written(before, seen(root))
    assert [line.split(": ")[0] for line in changed] == sorted(
        ["report/new", str(run_file.relative_to(tmp_path / "here"))]
    )


def test_programs_end_as_their_comparison_does(tmp_path):
    states = {name: tmp_path / f"{name}.json" for name in ("one", "two")}
    states["one"].write_text('{"contents": {}, "files": {"a": [1, 2.0]}}')
    states["two"].write_text('{"contents": {}, "files": {"a": [1, 3.0]}}')
    command = [sys.executable, "-m", "k8s.check.compare", "nothing-written", states["one"]]
    same = subprocess.run([*command, states["one"]], cwd=tools.ROOT, capture_output=True, text=True)
    other = subprocess.run([*command, states["two"]], cwd=tools.ROOT, capture_output=True, text=True)
    assert (same.returncode, other.returncode) == (0, 1)
    assert other.stdout == "a: [1, 2.0] → [1, 3.0]\n"


def test_the_parameters_are_the_pipelines_and_the_preset_takes_them():
    values = read_parameters(PARAMETERS, [], of_this_code("tlm"))
    resolve(values["run_preset"], values["run_overrides"].split())
    assert values["index_engine"] == "elasticsearch"


def test_versions_are_the_same_everywhere():
    common = (KIND / "common.sh").read_text()
    found = dict(re.findall(r"(KFP|ECK|NODE_IMAGE)=(\S+)", common))
    assert f"?ref={found['KFP']}&" in (tools.ROOT / "k8s/kfp/kustomization.yaml").read_text()
    assert f"/eck/{found['ECK']}/" in (KIND / "eck/kustomization.yaml").read_text()
    assert f"cloud-on-k8s/v3@v{found['ECK']}" in next(iter(tools.DEFINITIONS))
    assert found["NODE_IMAGE"] == "kindest/node:v1.36.1"
    assert "sigs.k8s.io/kind@v0.32.0" in (tools.ROOT / ".github/workflows/kind.yml").read_text()


def test_scripts_expand_no_empty_array_unguarded():
    """Under `set -u`, bash before 4.4 (that of macOS) ends at an empty array."""
    scripts = [path for path in tools.ROOT.rglob("*.sh") if ".venv" not in path.parts]
    assert len(scripts) > 10
    for script in scripts:
        assert not re.findall(r'(?<!\[@\]\+)"\$\{\w+\[@\]\}"', script.read_text()), script


# As kubectl does: listen, say so, and stay; or end where another program has the port.
KUBECTL = """#!{python}
import socket, sys, time
local = int(sys.argv[-1].split(":")[0])
try:
    listener = socket.create_server(("127.0.0.1", local))
except OSError as error:
    sys.exit(f"unable to listen on port {{local}}: {{error}}")
print(f"Forwarding from 127.0.0.1:{{local}} -> 80", flush=True)
time.sleep(60)
"""


def source_common(tmp_path, then):
    """Run a line of bash after `common.sh`, with the stand-in for kubectl and a free port in $port."""
    kubectl = tmp_path / "bin/kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL.format(python=sys.executable))
    kubectl.chmod(0o755)
    return subprocess.run(
        ["bash", "-c", f"source k8s/kind/common.sh; WORK={tmp_path}; {then}"],
        cwd=tools.ROOT, env={**os.environ, "PATH": f"{kubectl.parent}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip


@contextmanager
def listening():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_port_is_forwarded_and_closed_at_the_end(tmp_path):
    with listening() as port:
        pass
    done = source_common(tmp_path, f"forward kubeflow service {port} 80; (: < /dev/tcp/127.0.0.1/{port}) && echo open")
    assert (done.returncode, done.stdout) == (0, "open\n"), done.stderr
    assert any(closed(port) for _ in range(100))


def closed(port):
    """Whether nothing listens there; waits a little if something does, since a killed program ends soon after."""
    with socket.socket() as client:
        if client.connect_ex(("127.0.0.1", port)) != 0:
            return True
    time.sleep(0.1)
    return False


def test_the_port_of_another_program_is_refused(tmp_path):
    with listening() as port:
        done = source_common(tmp_path, f"forward kubeflow service {port}; echo went on")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"port {port} is taken by another program; stop it, then repeat the command\n"


@pytest.mark.parametrize(("cpus", "ending"), [(2, 1), (4, 0)])
def test_a_cluster_needs_four_cpus(tmp_path, cpus, ending):
    for name, says in {"docker": cpus, "kind": "tlm", "kubectl": "a node"}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {says}\n")
        program.chmod(0o755)
    done = subprocess.run(
        [KIND / "cluster.sh"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == ending
    assert done.stderr == ("" if ending == 0 else "the cluster needs 4 CPUs, but Docker has 2: give it more, or set "
                           "MIN_CPUS=2 to try nevertheless\n")  # fmt: skip


@pytest.mark.parametrize(("workers", "roles"), [("", ["control-plane"]), ("2", ["control-plane", "worker", "worker"])])
def test_a_cluster_has_as_many_nodes_as_asked_for(tmp_path, workers, roles):
    kind = f'case "$1" in create) cat > {tmp_path}/given;; esac'
    for name, does in {"docker": "echo 4", "kubectl": "true", "kind": kind}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "WORKERS": workers}
    subprocess.run([KIND / "cluster.sh"], env=environment, check=True)
    assert [node["role"] for node in yaml.safe_load((tmp_path / "given").read_text())["nodes"]] == roles


def test_ecks_webhook_is_gone_and_its_operator_knows(tmp_path):
    operator = [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "elastic-webhook.k8s.elastic.co"},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "elastic-operator", "namespace": "elastic-system"},
            "spec": {"template": {"spec": {"containers": [{"name": "manager", "args": ["manager", "--config=x"]}]}}},
        },
    ]
    component = tools.ROOT / "k8s/components/eck-without-webhook"
    (tmp_path / "part").mkdir()
    (tmp_path / "part/kustomization.yaml").write_bytes((component / "kustomization.yaml").read_bytes())
    (tmp_path / "operator.yaml").write_text(yaml.safe_dump_all(operator))
    (tmp_path / "kustomization.yaml").write_text("resources: [operator.yaml]\ncomponents: [part]\n")
    (left,) = yaml.safe_load_all(tools.build(tmp_path))
    container = left["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["manager", "--config=x", "--enable-webhook=false"]
