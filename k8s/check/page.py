"""Walk the page of Kubeflow Pipelines in a browser without a window, as a person would: ``python -m k8s.check.page``.

Uploads the compiled pipeline, types the parameters of a run into the form, starts it, watches it to the end, and opens
every output that the page can show: the report, the dataset card, metrics, the confusion matrix. Keeps a picture of
each. Fails with one sentence where something is not there. Any page without a login will do, and any store. Needs
Chromium, this project's packages, and ``pip install -r k8s/check/requirements-page.txt``; the data must be in the
bucket (``python -m k8s.check.data``). From the environment:

* ``KF_PIPELINES_UI_ENDPOINT``: address of the page
* ``BUCKET``: bucket of data and results [tlm]
* ``IMAGES``: file that `make images` wrote [build/images.json]
* ``PARAMETERS``: file of parameters [k8s/check/params.yaml]
* ``PIPELINE``: which of the pipelines [tlm]
* ``SERVICE_ACCOUNT``: of the pods [tlm-runner]
* ``RUN``: id of a run of that pipeline to look at, instead of a new one
* ``TIMEOUT``: seconds that the run may take [3600]
* ``WORK``: folder for the pictures [build/check]
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.faults import browser

try:
    from playwright.sync_api import Error, Locator, Page, sync_playwright
except ImportError:
    sys.exit("playwright is missing; run: pip install -r k8s/check/requirements-page.txt")

PATIENCE = 90  # seconds for anything that the page should show at once
PAUSE = 20  # seconds between two looks at a run
SIZE = {"width": 1200, "height": 900}
SCALE = 1.5  # pixels of a picture for each of these
NARROW = "localStorage.setItem('navbarCollapsed', 'true')"  # the menu leaves its room to the graph
ENDED = ("Succeeded", "Failed", "Canceled", "Skipped")

# What the panel of an artifact shows, by the artifact's type, and how we call it.
SHOWN = {
    "system.HTML": ("iframe", "page"),
    "system.Markdown": (".plotCard :is(h1, h2, h3, p, table)", "text"),
    "system.Metrics": ("h3:has-text('Scalar Metrics') >> xpath=../..", "numbers"),
    "system.ClassificationMetrics": ("h3:has-text('Confusion Matrix') >> xpath=../.. >> table", "confusion matrix"),
}


class Absent(Exception):
    """Something that the page should show is not there; the text says what, in one sentence."""


class Output(NamedTuple):
    """An artifact of a step, in the layers of the graph that lead to it."""

    layers: tuple[str, ...]
    step: str
    name: str
    type: str

    @property
    def picture(self) -> str:
        """The name of its picture."""
        return f"{self.step}-{self.name}"


class Walk:
    """A page, and the folder of its pictures, numbered as they are taken."""

    def __init__(self, page: Page, address: str, folder: Path) -> None:
        self.page, self.address, self.folder = page, address.rstrip("/"), folder
        self.taken = 0
        self.trained = True  # whether the run whose outputs are shown trains a network; embeddings are only fitted

    def open(self, path: str) -> None:
        """Open a path of the page, without anything that it remembers."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/#/{path}")

    def open_run(self, run: str) -> None:
        """Open the page of a run; again where it fails, as it does in a run's first seconds, without a state."""
        for _ in range(PATIENCE // 10):
            self.open(f"runs/details/{run}")
            shown = self.page.locator(".react-flow__node").or_(self.page.get_by_text("Something went wrong"))
            self.expect(shown, f"the page of run {run} shows no graph")
            if not self.page.get_by_text("Something went wrong").count():
                return
            self.page.wait_for_timeout(10_000)
        raise Absent(f"the page of run {run} goes wrong; it is {self.picture('wrong')}")

    def expect(self, where: Locator | str, what: str) -> Locator:
        """What is visible there; fails with ``what`` where nothing is."""
        found = (self.page.locator(where) if isinstance(where, str) else where).first
        try:
            found.wait_for(timeout=PATIENCE * 1000)
        except Error:
            raise Absent(f"{what}; the page is {self.picture('absent')}") from None
        return found

    def picture(self, name: str) -> Path:
        """Take a picture of what is visible now."""
        self.taken += 1
        file = self.folder / f"page-{self.taken:02d}-{name}.png"
        self.page.wait_for_timeout(1500)  # things that move come to rest
        self.page.screenshot(path=file)
        print(file, file=sys.stderr)
        return file

    def node(self, key: str) -> Locator:
        """A step or an artifact in the graph; fails where it is not."""
        return self.expect(f".react-flow__node[data-id='{key}']", f"the graph does not show {key}")

    def click(self, where: Locator, what: str) -> None:
        """Click on something; fails with ``what`` where it is not, or does not take clicks."""
        try:
            where.first.click(timeout=PATIENCE * 1000)
        except Error:
            raise Absent(f"{what}; the page is {self.picture('absent')}") from None

    def press(self, name: str) -> None:
        """Press a button or a tab by what is written on it."""
        self.click(self.page.get_by_role("button", name=name, exact=True), f"there is no {name!r} to press")

    def fit(self) -> None:
        """Fit the graph into the window."""
        self.click(self.page.locator(".react-flow__controls-fitview"), "the graph cannot be fitted into the window")
        self.page.wait_for_timeout(500)

    def upload(self, file: Path, name: str, steps: list[str]) -> None:
        """Upload the compiled pipeline under a name; its graph has all steps."""
        self.open("pipelines")
        self.press("Upload pipeline")
        self.expect("#newPipelineName", "the form for a pipeline has no field for its name").fill(name)
        self.page.get_by_label("Upload a file").check()
        self.page.locator("input[type=file]").set_input_files(file)
        self.picture("upload")
        self.press("Create")
        self.expect(".react-flow__node", "the page shows no graph of the uploaded pipeline")
        for step in steps:
            self.node(f"task.{step}")
        self.fit()
        self.picture("pipeline")

    def start(self, name: str, account: str, values: dict[str, str], known: list[str]) -> str:
        """Create a run of the pipeline on the page, with parameters as typed; returns its id."""
        page = self.page
        self.press("Create run")
        self.expect(page.get_by_label("Run name"), "the form for a run has no field for its name").fill(name)
        page.get_by_label("Service Account").fill(account)
        self.picture("form")
        for parameter in known:
            self.expect(f"[id='{parameter}']", f"the form for a run has no field for {parameter}")
        for parameter, value in values.items():
            field = page.locator(f"[id='{parameter}']")
            field.fill("")
            field.press_sequentially(value)
            if field.input_value() != value:
                raise Absent(f"the field of {parameter} has {field.input_value()!r} after {value!r} was typed into it")
        self.picture("parameters")
        self.press("Start")
        try:
            page.wait_for_url(re.compile("/runs/details/"), timeout=PATIENCE * 1000)
        except Error:
            raise Absent(f"no run started; the page is {self.picture('not-started')}") from None
        return page.url.rpartition("/")[2].partition("?")[0]

    def watch(self, run: str, seconds: float) -> None:
        """Look at the run until it has ended; fails if it has not succeeded."""
        end = time.monotonic() + seconds
        pictured = False
        while (state := self.state(run)) not in ENDED:
            if time.monotonic() > end:
                raise Absent(f"run {run} has not ended after {seconds:.0f} s: {state}")
            if state == "Running" and not pictured and self.done() > 3:
                pictured = bool(self.picture("running"))
            self.page.wait_for_timeout(PAUSE * 1000)
        if state != "Succeeded":
            self.graph()
            raise Absent(f"run {run} ended as {state}; the page is {self.picture('ended')}")

    def state(self, run: str) -> str:
        """The state of a run as its page says it."""
        self.open_run(run)
        self.press("Detail")
        row = self.page.locator("span:text-is('Status') + span")
        return self.expect(row, f"the page of run {run} does not say its state").inner_text().strip()

    def done(self) -> int:
        """How many steps of the visible graph have ended well."""
        self.graph()
        return self.page.locator(".react-flow__node [data-testid=CheckCircleIcon]").count()

    def graph(self) -> None:
        """Show the graph of the run, and all of it."""
        self.press("Graph")
        self.expect(".react-flow__node", "the page of the run shows no graph")
        self.page.wait_for_timeout(5000)  # for the states of the steps
        self.fit()

    def ended(self, steps: list[str]) -> None:
        """The graph of a run that succeeded: every step has its mark."""
        self.graph()
        for step in steps:
            mark = self.node(f"task.{step}").locator("[data-testid=CheckCircleIcon]")
            self.expect(mark, f"the step {step} is not marked as done")
        self.picture("run")

    def enter(self, run: str, layers: tuple[str, ...]) -> None:
        """Open the layers of the graph, one inside the other."""
        self.open_run(run)
        self.graph()
        for layer in layers:
            self.click(self.node(f"task.{layer}").get_by_test_id("expand-button"), f"{layer} cannot be opened")
            self.page.wait_for_timeout(1000)
            self.fit()

    def show(self, output: Output) -> None:
        """Open an artifact: its content begins to show, and its visualization is there."""
        of = f"{output.name} of {output.step}"
        self.click(self.node(f"artifact.{output.step}.{output.name}"), f"{of} cannot be opened")
        self.press("Artifact Info")
        self.expect("text=View All", f"the page does not say where {of} is")
        selector, content = SHOWN.get(output.type, ("", ""))
        if content:
            self.press("Visualization")
            found = self.expect(selector, f"the page shows no {content} for {of}")
            if content == "page":
                self.expect(found.content_frame.locator("h1"), f"{of} is a page without a heading")
            if content == "numbers":
                self.numbers(found, output)
        self.picture(output.picture)
        if (banner := self.page.get_by_text(re.compile("^Error"))).count():
            raise Absent(f"the page says of {of}: {banner.first.inner_text()}")
        if content in ("page", "text"):
            self.whole(output)
        self.page.keyboard.press("Escape")

    def numbers(self, shown: Locator, output: Output) -> None:
        """Fail if no numbers are shown, except for the cost of a run that trains nothing, which has none."""
        try:
            shown.get_by_text(re.compile(r"^\s*-?[0-9]")).first.wait_for(timeout=PATIENCE * 1000)
        except Error:
            if output.name != "cost":
                raise Absent(f"{output.name} of {output.step} has no numbers") from None
            self.trained = False
            print(f"{output.step} trained nothing, as for embeddings: its cost is empty", file=sys.stderr)

    def model(self, output: Output) -> None:
        """Follow the name of a model to its own page, which says where the model is."""
        of = f"{output.name} of {output.step}"
        self.click(self.node(f"artifact.{output.step}.{output.name}"), f"{of} cannot be opened")
        self.click(self.page.get_by_role("link", name=output.name, exact=True), f"{of} has no page of its own")
        address = self.page.locator("dt:text-is('uri') + dd").filter(has_text="://")
        self.expect(address, f"the page of {of} does not say where the model is")
        self.picture(f"{output.picture}-address")

    def whole(self, output: Output) -> None:
        """Open a page or a text in the large, with the button for that, and close it."""
        of = f"{output.name} of {output.step}"
        self.click(self.page.get_by_test_id("pop-out-button"), f"{of} cannot be opened in the large")
        self.expect(".MuiDialog-root :is(iframe, h1, p)", f"{of} does not open in the large")
        self.picture(f"{output.picture}-whole")
        self.page.get_by_test_id("fullscreen-close-button").click()
        self.page.wait_for_timeout(1000)


def steps_of(graph: dict[str, Any]) -> list[str]:
    """The steps of a graph that run whatever the parameters are."""
    return [key for key, task in graph["tasks"].items() if "condition" not in task.get("triggerPolicy", {})]


def outputs_of(pipeline: dict[str, Any], graph: dict[str, Any], layers: tuple[str, ...] = ()) -> Iterator[Output]:
    """The artifacts of a graph and of the graphs inside it; of loops, those of the first item."""
    for key in steps_of(graph):
        task = graph["tasks"][key]
        component = pipeline["components"][task["componentRef"]["name"]]
        if "dag" in component:
            loop = any(kind in task for kind in ("parameterIterator", "artifactIterator"))
            yield from outputs_of(pipeline, component["dag"], (*layers, key, *([f"{key}.0"] if loop else [])))
            continue
        for name, artifact in component.get("outputDefinitions", {}).get("artifacts", {}).items():
            yield Output(layers, key, name, artifact["artifactType"]["schemaTitle"])


def values_of(parameters: Path, bucket: str) -> dict[str, str]:
    """The parameters as a person types them."""
    given = yaml.safe_load(parameters.read_text(encoding="utf-8"))
    given |= {"corpus_paths": f"s3://{bucket}/corpus/", "task_path": f"s3://{bucket}/task/"}
    given |= {"store_root": f"s3://{bucket}/artifacts"}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in sorted(given.items())}


def compiled(name: str, images: str, folder: Path) -> Path:
    """Compile a pipeline with these images."""
    file = folder / f"{name}.yaml"
    command = [sys.executable, "-m", "pipelines.run", "compile", "--pipeline", name, "--images", images]
    if subprocess.run([*command, "-o", str(file)], check=False).returncode:
        raise Absent("the pipeline does not compile")
    return file


def walk(page: Page, setting: dict[str, str]) -> None:
    """The whole way."""
    folder = Path(setting.get("WORK", "build/check"))
    folder.mkdir(parents=True, exist_ok=True)
    address = setting.get("KF_PIPELINES_UI_ENDPOINT")
    if not address:
        raise Absent("KF_PIPELINES_UI_ENDPOINT is not set: where is the page of Kubeflow Pipelines?")
    file = compiled(setting.get("PIPELINE", "tlm"), setting.get("IMAGES", "build/images.json"), folder)
    pipeline = next(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    graph = pipeline["root"]["dag"]
    steps = steps_of(graph)
    way = Walk(page, address, folder)
    if not (run := setting.get("RUN")):
        name = f"{file.stem}-page-{time.strftime('%Y%m%d-%H%M%S')}"
        way.upload(file, name, steps)
        known = list(pipeline["root"]["inputDefinitions"]["parameters"])
        values = values_of(Path(setting.get("PARAMETERS", "k8s/check/params.yaml")), setting.get("BUCKET", "tlm"))
        run = way.start(name, setting.get("SERVICE_ACCOUNT", "tlm-runner"), values, known)
        print(f"run {run}", file=sys.stderr)
    way.watch(run, float(setting.get("TIMEOUT", "3600")))
    way.ended(steps)
    outputs = list(outputs_of(pipeline, graph))
    for layers in dict.fromkeys(output.layers for output in outputs):
        way.enter(run, layers)
        if layers:
            way.picture("inside-" + layers[0])
        here = [output for output in outputs if output.layers == layers]
        for output in here:
            way.show(output)
        for output in here:
            if output.type == "system.Model" and way.trained:
                way.model(output)  # leaves the graph
                way.enter(run, layers)
    print(f"run {run}: {len(steps)} steps, {len(outputs)} outputs, {way.taken} pictures in {folder}")


def main() -> int:
    """Take the walk; 1 and a sentence where something is not there."""
    if not (program := browser.program()):
        print(browser.MISSING, file=sys.stderr)
        return 1
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as player:
        window = player.chromium.launch(executable_path=program, args=options)
        try:
            page = window.new_page(viewport=SIZE, device_scale_factor=SCALE)  # type: ignore[arg-type]
            page.add_init_script(NARROW)
            walk(page, dict(os.environ))
        except (Absent, Error) as error:
            print(str(error).partition("\n")[0], file=sys.stderr)
            return 1
        finally:
            window.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
