"""Every command and code block of README and site runs, or stands in one list with the reason why not."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import tomllib
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path

import click
import pytest
import typer.main
import yaml

from fieldfare.plan import Plan
from fieldfare_server.cli.application import assemble
from support.pages import FENCED, INDENTED, ROOT, Block, Reader, blocks_of, pages, text_of

CONTAINERS = "needs a container engine: tests/e2e starts the compose files and runs these"
NOT_RUN = {
    (
        "amplification.md",
        "fieldfare suggest deploy/plans/flights-poisson.toml --certified",
    ): "a minute of samples; tests/server/planning runs it on a small plan",
    (
        "amplification.md",
        "fieldfare plan deploy/plans/flights-spaced.toml",
    ): "half a minute of samples; tests/server/run/test_spaced_runs.py certifies such runs of a small plan",
    ("README.md", "make install && source .venv/bin/activate"): "installs for minutes; .ci/run does it from nothing",
    ("README.md", "make demo"): "minutes; tests/server/cli runs the command on a sample",
    ("index.md", "make install && source .venv/bin/activate"): "as in the README",
    ("certificate.md", "python -m pip install"): "installs packages; the tests' environment has them",
    ("contributing.md", "@register"): "outlines; the classes of the tree are the real ones",
    ("deployment.md", "docker compose up"): CONTAINERS,
    ("deployment.md", "fieldfare certificates server"): "for separate machines: tests/e2e/test_containers_apart.py",
    ("deployment.md", "cosign verify"): "needs a published release",
    ("deployment.md", "docker compose exec coordinator"): CONTAINERS,
    ("deployment.md", "kubectl create"): "needs a cluster; tests/deploy/test_helm.py renders the chart",
    ("deployment.md", "fieldfare run --resume"): CONTAINERS,
    ("deployment.md", "docker compose stop"): CONTAINERS,
    ("errors.md", "fieldfare simulate --resume"): "needs an interrupted run: tests/server/cli/test_simulate.py",
    ("errors.md", "fieldfare abandon"): "needs an interrupted run: tests/server/cli/test_cli.py",
    ("tutorial-flower.md", "flwr run"): "needs a SuperLink: tests/examples/test_examples.py",
    ("privacy-officer.md", "fieldfare serve"): "serves until it is stopped: tests/server/cli/test_serve.py",
    ("privacy-officer.md", "fieldfare budget --url"): "needs another machine: tests/server/cli/test_cli_remote.py",
    ("questions.md", "hist = ff.ask("): "needs a Flower app: tests/examples/test_flower_queries.py",
    ("questions.md", "@ff.private.measure"): "needs a Flower app: tests/server/run/test_asking_apps.py",
    ("questions.md", "fieldfare ask question.toml --superlink"): "needs a SuperLink: tests/e2e/test_flower_engines.py",
    **{
        ("masked-sums.md", begins): "minutes of SuperNodes: tests/e2e/test_masked_page.py types the whole page"
        for begins in ("export FIELDFARE_HOME=$PWD/server", "python -m fieldfare_client.budget show --file node-0")
    },
    ("head.md", "fieldfare-head-v1"): "a format",
    ("charges.md", "from fieldfare.accounting.foreign"): "other trainers' programs, which are no dependency of ours",
}
"""(page, how the block begins) -> why it is not run. Its options are checked all the same."""
SLOW = {
    "certificate.md",
    "charges.md",
    "errors.md",
    "accuracy.md",
    "flower-app.md",
    "index.md",
    "mechanisms.md",
    "plan-files.md",
    "privacy-officer.md",
    "python.md",
    "tested.md",
    "tutorial-flower.md",
    "tutorial-officer.md",
    "tutorial-operator.md",
    "tutorial-scientist.md",
    "your-data.md",
    "your-task.md",
}
"""Pages that take more than some seconds."""
OUTPUT = {"text", "diff"}
"""Languages of blocks that nobody types."""
MANY = [page for page in pages() if any(block.language not in OUTPUT for block in blocks_of(page))]


def reason(block: Block) -> str | None:
    """Why a block is not run, if it is not."""
    for (page, start), why in NOT_RUN.items():
        if block.page == page and block.name.startswith(start):
            return why
    return None


@cache
def program() -> click.Command:
    return typer.main.get_command(assemble())


def require_options(words: list[str], whole: bool) -> None:
    """The command after `fieldfare` exists and has these options; `whole`: its arguments are complete too."""
    command, rest, context = program(), list(words), click.Context(program(), info_name="fieldfare")
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"no command {name!r} in {' '.join(words)!r}"
        command, context = found, click.Context(found, info_name=name, parent=context)
    if whole and not isinstance(command, click.Group):
        command.make_context(command.name, rest, parent=context)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h"}
    for word in rest:
        assert not word.startswith("-") or word.split("=")[0] in known, f"no option {word} in {' '.join(words)!r}"


def require_valid(line: str) -> None:
    """A shell line names programs, services, targets and options that exist."""
    words = list(takewhile(lambda word: word not in {">", "&>", "&"}, shlex.split(line, comments=True)))
    if not words:
        return
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, line
    if words[:2] == ["docker", "compose"]:
        compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
        profiles = {profile for service in compose["services"].values() for profile in service.get("profiles", ())}
        for option, name in pairwise(words):
            assert option != "--profile" or name in profiles, line
        verb = next((word for word in words if word in ("exec", "run", "stop", "start")), None)
        if verb:
            rest = words[words.index(verb) + 1 :]
            while rest[0].startswith("-"):
                rest = rest[2 if rest[0] in ("-e", "-v") else 1 :]
            assert rest[0] in compose["services"], line
    if words[0] == "helm":
        assert (ROOT / words[3] / "Chart.yaml").is_file(), line
    if "fieldfare" in words:
        require_options(words[words.index("fieldfare") + 1 :], whole=True)


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.slow] if p.name in SLOW else []) for p in MANY], ids=lambda p: p.stem
)
def test_a_reader_can_type_the_whole_page(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for block in blocks_of(page):
        assert block.language in {"bash", "python", "toml"} | OUTPUT, f"{page.name}, {block.name}: which language?"
        reader.follow(block)
        if block.language == "toml" and "[run]" in block.text:
            Plan.from_toml(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif reason(block) is None and block.language not in OUTPUT:
            reader.run(block)


@pytest.mark.parametrize("page", MANY, ids=lambda page: page.stem)
def test_what_is_not_run_has_valid_options(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "bash" and reason(block) not in (None, "a format"):
            for line in block.text.replace("\\\n", " ").splitlines():
                require_valid(line)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_command_in_a_sentence_exists(page: Path) -> None:
    for code in re.findall(r"`(fieldfare [a-z][^`\n]*)`", text_of(page)):
        require_options([word for word in shlex.split(code)[1:] if re.fullmatch(r"[\w./:-]+", word)], whole=False)


OF_OTHERS = {"--enable-supernode-auth", "--help", "--version"}
"""Options that a sentence names and that are of no one command of ours."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_option_in_a_sentence_exists(page: Path) -> None:
    """A page named `--reservation-days`, and the option is `--reservation-hours`."""
    text = re.sub(r"`python [^`]*`", "", INDENTED.sub("", FENCED.sub("", text_of(page))))
    named = set(re.findall(r"`(--[a-z][a-z-]+)", text))
    known = {option for command in commands(program()).values() for option in command_options(command)}
    assert named <= known | OF_OTHERS


def commands(command: click.Command, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Every command below `command`, by its words."""
    if isinstance(command, click.Group):
        below = [commands(part, (*path, name)) for name, part in command.commands.items()]
        return {words: part for parts in below for words, part in parts.items()}
    return {" ".join(path): command}


def test_the_page_of_commands_has_a_row_for_every_command() -> None:
    hook = runpy.run_path(str(ROOT / "docs/hooks/commands.py"))
    page = hook["on_page_markdown"]((ROOT / "docs/commands.md").read_text())
    every = commands(program())
    rows = re.findall(r"^\| `fieldfare ([^`]+)` \| \S.* \|$", page, re.MULTILINE)
    assert [" ".join(word for word in row.split() if word == word.lower()) for row in rows] == list(every)
    assert {words.split()[0] for words in every} >= hook["PAGES"].keys()
    assert all(f"`{words}`" in page for words, command in every.items() if "--json" not in command_options(command))


def command_options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_the_list_of_blocks_that_are_not_run_names_blocks_that_exist() -> None:
    blocks = [block for page in pages() for block in blocks_of(page)]
    for page, start in NOT_RUN:
        assert any(block.page == page and block.name.startswith(start) for block in blocks), (page, start)


@pytest.mark.parametrize(
    "line",
    [
        "fieldfare serve --no-such-option",
        "fieldfare populations create x",
        "docker compose exec nothing fieldfare doctor",
        "docker compose --profile nothing run --rm submit",
        "make nothing",
        "helm install fed deploy/helm/nothing",
        "fieldfare population raise patients --epsilon 10",
    ],
)
def test_a_wrong_line_is_noticed(line: str) -> None:
    with pytest.raises((AssertionError, click.ClickException)):
        require_valid(line)


def test_a_failing_block_is_noticed(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    with pytest.raises(AssertionError, match="no-such-file"):
        reader.run(Block("page.md", "bash", "cat no-such-file | cat\ntrue\n", ""))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        reader.run(Block("page.md", "python", "1 / 0\n", ""))


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r": ([\w-]+\.md)$", text, re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}
