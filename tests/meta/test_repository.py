"""The files around the code: one version, names that tell files apart, workflows."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

import diffprune

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
SOURCE = ROOT / "src" / "diffprune"
LAB = sorted((SOURCE / "lab").rglob("*.py"))
LIBRARY = sorted(set(SOURCE.rglob("*.py")) - set(LAB))
TREES = {
    "library": LIBRARY,
    "lab": LAB,
    "paper": sorted((ROOT / "paper").rglob("*.py")),
}
SHORT = 60
REASONS = {
    "_core/randomness.py": "every generator, apart from what a checkpoint is",
    "_export/program.py": "one public function, as onnx.py is another",
    "integrations/accelerate.py": "one public function, for one library",
    "lab/sweeps/on_ray.py": "one function, for one library",
    "_surgery/product_precision.py": "what hardware rounds, whoever compares",
    "_graph/ops/matrices.py": "a family of ops, as the files beside it",
    "_pruner/final_check.py": "the whole of a certificate, where removals show a part",
    "_pruner/known_torch_bugs.py": "goes as a whole once torch is mended",
    "__main__.py": "the command",
    "errors.py": "a public namespace",
    "rules.py": "a public namespace",
    "surgery.py": "a public namespace",
    "lab/cli/app.py": "the list of all commands",
    "lab/cli/compare_command.py": "one command, one file",
    "lab/cli/demo_command.py": "one command, one file",
    "lab/cli/report_command.py": "one command, one file",
    "integrations/peft.py": "imported only by those who have PEFT",
    "lab/training/signals.py": "the only code that runs in a signal handler",
    "lab/defaults.py": "imports nothing, so that help texts can read it",
}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERSIONS = [
    name.rpartition(" ")[2]
    for name in PROJECT["project"]["classifiers"]
    if re.search(r":: 3\.\d+$", name)
]


def load(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_version_stands_in_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    path = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{diffprune.__version__}"' in path.read_text()
    assert str(load("CITATION.cff")["version"]) == diffprune.__version__


def test_the_authors_are_those_to_cite():
    cited = [author["name"] for author in load("CITATION.cff")["authors"]]
    assert [author["name"] for author in PROJECT["project"]["authors"]] == cited


@pytest.mark.parametrize("tree", TREES)
def test_no_file_name_occurs_twice_in_a_tree(tree):
    names = Counter(path.name for path in TREES[tree])
    shared = {"__init__.py", "__main__.py"}
    assert {name for name, count in names.items() if count > 1} <= shared


@pytest.mark.parametrize("path", [*LIBRARY, *LAB], ids=lambda p: p.stem)
def test_a_short_file_has_a_reason(path):
    """A reason is that two files import it, or is written above."""
    if lines(path) >= SHORT or path.name == "__init__.py":
        return
    name = str(path.relative_to(SOURCE))
    module = f"diffprune.{name.removesuffix('.py').replace('/', '.')}"
    users = [p for p in (*LIBRARY, *LAB) if f"from {module} import" in p.read_text()]
    assert len(users) > 1 or REASONS.get(name)


def test_no_reason_is_out_of_date():
    assert [name for name in REASONS if not (SOURCE / name).exists()] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_that_exist(path):
    jobs = load(path)["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    assert set(re.findall(r"\bmake ([\w-]+)", commands)) <= TARGETS
    assert all("timeout-minutes" in job for job in jobs)
    assert all("@" in step["uses"] for step in steps if "uses" in step)


def test_the_matrix_covers_what_the_package_promises():
    matrix = load(".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == VERSIONS
    (torch,) = (d for d in PROJECT["project"]["dependencies"] if d.startswith("torch"))
    oldest, newest = matrix["torch"]
    assert torch == f"torch>={oldest.strip('=.*')},{newest}"


def test_hooks_run_what_is_installed_for_development():
    (repo,) = load(".pre-commit-config.yaml")["repos"]
    tools = {Path(hook["entry"].split()[0]).name for hook in repo["hooks"]}
    needed = " ".join(PROJECT["dependency-groups"]["lint"])
    packages = {"lint-imports": "import-linter"}
    assert all(packages.get(tool, tool) in needed for tool in tools)


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=str
)
def test_issue_templates_are_forms(path):
    form = load(path)
    if path.stem != "config":
        assert form["name"]
        assert all(part["attributes"]["label"] for part in form["body"])


def test_laws_use_the_public_library_alone():
    laws = (ROOT / "tests" / "laws").glob("*.py")
    assert [path.name for path in laws if "diffprune._" in path.read_text()] == []


def test_the_diagram_of_layers_is_the_contract():
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers")
    expected = [re.findall(r"diffprune\.(\w+)", row) for row in layers]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (diagram,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    rows = [row.split("  ")[0].split(" | ") for row in diagram.splitlines()]
    assert rows == expected
