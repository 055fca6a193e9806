"""Poems and chess players, from tiny archives in the true formats."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.sources import fetch
from fieldfare_client.storage import open_table
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable
from fieldfare_research import chess, poems
from fieldfare_research.chess import ChessTask
from fieldfare_research.poems import BEGIN, END, LENGTH, UNKNOWN, PoemsTask
from fieldfare_research.tables import parts_by_digest
from support.packages import described, pinned
from support.refusals import coded

CHESS, POEMS = chess.SOURCE, poems.SOURCE
LISTED = ",".join(f"{1500 + 7 * (month // 2 % 2)}" for month in range(12))


def player(number: str, elo: str, birth: str = "1990") -> str:
    return f"Someone {number} #GM NOR [2847] {birth}.11.30\n   %Bio Title GM:2004\n   %Bio FIDEID {number}\n{elo}"


YEARS = "".join(f"   %Elo {year}:{LISTED}\n" for year in (2017, 2018, 2019)) + f"   %Elo 2020:{LISTED} 2021:1,2,3,4\n"


def spelling(players: list[str]) -> bytes:
    head = '# comment\n@PLAYER "., -_*"\n\n### START OF PLAYER SECTION\n'
    tail = '@SITE ", "\nNot, A Player #- NOR [1500] 1990\n   %Bio FIDEID 999\n' + YEARS
    return (head + "".join(players) + tail).encode("latin-1")


def lines(text: str) -> dict[str, tuple[int, np.ndarray]]:  # type: ignore[type-arg]
    whole = ('@PLAYER "., -_*"\n' + text).splitlines(keepends=True)
    return {number: (birth, ratings) for number, birth, ratings in chess.read(iter(whole))}


def test_one_line_holds_several_years_and_early_years_are_left_out() -> None:
    text = player("1503014", f"   %Elo 2001:?,2064,2084,2072 2013:{LISTED}\n   %Elo 2020:{LISTED} 2021:1,2500,?,24x7\n")
    birth, ratings = lines(text)["1503014"]
    assert birth == 1990
    assert ratings[:3].tolist() == [1500, 1500, 1507]
    assert not ratings[12:84].any()
    assert ratings[84:].tolist() == [*ratings[:12].tolist(), 0, 2500, 0, 0]


def test_a_year_with_another_number_of_lists_is_left_out() -> None:
    text = player("7", f"   %Elo 2016:1500,1500 2017:{LISTED}\n   %Elo 1992.2270 M:18 x:1,2\n", birth="")
    birth, ratings = lines(text)["7"]
    assert birth == 0
    assert np.flatnonzero(ratings).tolist() == list(range(48, 60))


def test_players_without_a_number_and_what_follows_the_players_are_left_out() -> None:
    text = player("7", YEARS).replace("   %Bio FIDEID 7\n", "") + player("8x", YEARS)
    assert list(lines(text + '@SITE ""\n' + player("9", YEARS))) == ["8x"]


@pytest.fixture(scope="module")
def players(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chess")
    text = [player(str(number), YEARS, str(1950 + number % 50)) for number in range(100, 160)]
    idle = player("5", f"   %Elo 2017:{','.join(['?'] * 12)}\n")
    source, archive = pinned(CHESS, {chess.FILE: spelling([*text, idle])}, folder)
    fetch(source, folder, archive)
    return folder


def test_chess_tables_are_split_by_a_hash_of_the_number(players: Path) -> None:
    facts = described(players, "chess")
    assert facts["counts"]["users"] == 60
    assert facts["counts"]["players"] == 61
    assert facts["counts"]["transitions"] == 60 * 36
    assert {name: table["users"] for name, table in facts["tables"].items()} == {
        f"chess-{part}.arrow": len(places)
        for part, places in parts_by_digest(f"fieldfare-chess:{number}" for number in range(100, 160)).items()
    }
    rating = open_table(players / "chess-train.arrow").rows(np.array([0])).columns["rating"][0]
    assert rating[:4].tolist() == [1507, 1507, 1500, 1500], "the first list is that of March 2017"


def test_inputs_know_nothing_of_the_month_that_is_predicted() -> None:
    rating = torch.randint(1000, 2500, (3, chess.LISTS), dtype=torch.int16)
    rating[0, 10], rating[1] = 0, 1700
    columns = {"rating": rating, "birth": torch.tensor([1998, 0, 2018], dtype=torch.int16)}
    task = ChessTask()
    inputs, targets = task.prepare(columns)
    assert inputs.shape == (3, 35, 8)
    # Step s is at list s + 1 and predicts list s + 2; the three steps around a missing list are unknown or masked.
    assert torch.nonzero(targets[0] < 0).flatten().tolist() == [8, 9]
    assert not targets[1].any()
    assert inputs[:, 0, 4].tolist() == pytest.approx([0, 0, -1])
    assert inputs[:, 0, 5].tolist() == [1, 0, 1]
    # The target of step 0 is May.
    assert inputs[0, 0, 6:].tolist() == pytest.approx(
        [np.sin(2 * np.pi * 5 / 12), np.cos(2 * np.pi * 5 / 12)], abs=1e-6
    )
    model = task.build_model()
    before = model(inputs)
    changed = rating.clone()
    changed[:, 20:] = 1234
    after = model(task.prepare({**columns, "rating": changed})[0])
    torch.testing.assert_close(before[:, :19], after[:, :19])
    assert not torch.equal(before[:, 19:], after[:, 19:])


def test_a_player_without_a_known_month_has_no_loss() -> None:
    outputs, targets = torch.randn(2, 35), -torch.ones(2, 35)
    targets[1, :2] = torch.tensor([0.0, 1.0])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(outputs[1, :2], targets[1, :2])
    torch.testing.assert_close(ChessTask().loss(outputs, targets), torch.stack([torch.tensor(0.0), expected]))


def train(task: Task, users: int) -> None:
    """One round with both engines: the update is finite, not zero, and the same."""
    model = task.build_model()
    start = Schema.of(model).flatten(dict(model.named_parameters()))
    sums = []
    for engine in ("loop", "batched"):
        table = task.users()
        assert isinstance(table, UserTable)
        trainer = Trainer(task, ClientSpec(engine=engine, batch_size=4), lambda updates: None)  # type: ignore[arg-type]
        sums.append(trainer.train([start], [1.0], table, np.arange(users), at_round=0).update)
        assert sums[-1].any()
    torch.testing.assert_close(sums[0], sums[1], rtol=1e-3, atol=1e-5)


def test_chess_trains_and_scores(players: Path) -> None:
    task = ChessTask(folder=players)
    assert Schema.of(task.build_model()).numel == 4_073
    train(task, 3)
    tune = ChessTask(folder=players, scored="tune")
    assert 0 <= tune.evaluate(tune.build_model())["auc"] <= 1


def test_fewer_players_are_taken_evenly_among_all_numbers(players: Path) -> None:
    tables = [ChessTask(folder=players, users=count).users() for count in (1000, 10)]
    everybody, some = (table.rows(np.arange(len(table))).columns["birth"].tolist() for table in tables)  # type: ignore[arg-type]
    assert len(some) == 10
    assert some == [everybody[place * len(everybody) // 10] for place in range(10)]


def test_the_written_gru_is_torchs() -> None:
    model = ChessTask().build_model()
    assert isinstance(model, chess.Recurrent)
    peer = torch.nn.GRU(chess.INPUTS, 32, batch_first=True)
    weights = {"weight_ih_l0": model.given.weight, "weight_hh_l0": model.kept.weight}
    peer.load_state_dict(weights | {"bias_ih_l0": model.given.bias, "bias_hh_l0": model.kept.bias})
    inputs = torch.randn(4, 7, chess.INPUTS)
    expected = model.head(torch.cat((peer(inputs)[0], inputs), 2))[..., 0]
    torch.testing.assert_close(model(inputs), expected, rtol=1e-4, atol=1e-6)


def poem(author: str, text: str) -> dict[str, object]:
    return {"author": f" {author} ", "title": "t", "paragraphs": [text[:5], text[5:]], "id": "x"}


TANG = [poem("李白", "床前明月光，疑是地上霜。"), poem("無名氏", "月月月，。"), poem("杜甫", "")]
SONG = [
    *[
        poem(f"{author}生", f"明月{author}，" * 12 + "地上霜。")
        for author in "甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳午未申酉戌亥天地"
    ],
    poem("甲生", "床前明月光，□。"),
    poem("甲生", "床前明月光，□。"),
    poem("李白", "月月月月月"),
    poem("佚名", "月"),
]


def archive_of(song: list[dict[str, object]]) -> dict[str, bytes]:
    files = {"tang.0": TANG[:1], "tang.1000": TANG[1:], "song.0": song}
    return {f"{poems.FOLDER}/poet.{name}.json": json.dumps(rows).encode() for name, rows in files.items()}


@pytest.fixture(scope="module")
def verse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("poems")
    source, archive = pinned(POEMS, archive_of(SONG), folder)
    fetch(source, folder, archive)
    return folder


def test_names_of_tang_words_for_nobody_and_duplicates_are_left_out(verse: Path) -> None:
    facts = described(verse, "poems")
    assert facts["counts"]["users"] == 24
    rows = sum(table["rows"] for name, table in facts["tables"].items() if "public" not in name)
    assert rows == 24 * 2 + 1, "two windows a poem, and one poem more of one poet"
    assert facts["tables"]["poems-public.arrow"]["rows"] == 1, "the nameless poem is no training text"
    known = "月。，上光前地床明是疑霜"
    assert facts["counts"]["sha256 of vocabulary"] == hashlib.sha256(known.encode()).hexdigest()


def test_vocabulary_and_public_rows_do_not_depend_on_song(verse: Path, tmp_path: Path) -> None:
    source, archive = pinned(POEMS, archive_of([poem("甲生", "新新新新新")]), tmp_path)
    fetch(source, tmp_path, archive)
    one, other = described(verse, "poems"), described(tmp_path, "poems")
    assert one["tables"]["poems-public.arrow"] == other["tables"]["poems-public.arrow"]
    for what in ("sha256 of vocabulary", "sha256 of public rows"):
        assert one["counts"][what] == other["counts"][what]


def test_windows_overlap_by_the_symbol_that_is_not_predicted() -> None:
    codes = {"月": 1, "光": 2}
    (window,) = poems.windows("月光新", codes)
    assert window[:6] == [BEGIN, 1, 2, UNKNOWN, END, 0]
    first, second = poems.windows("月" * 40, codes)
    assert first == [BEGIN, *[1] * LENGTH]
    assert second[:10] == [*[1] * 9, END]
    assert list(poems.windows("新新", codes)) == []
    assert len(list(poems.windows("月" * 31 + "新" * 40, codes))) == 1


def test_fewer_poets_are_taken_evenly_with_all_their_windows(verse: Path) -> None:
    everybody = PoemsTask(folder=verse).users()
    count = len(everybody) // 2
    fewer = PoemsTask(folder=verse, users=count).users()
    places = [place * len(everybody) // count for place in range(count)]
    assert list(fewer.pseudonyms) == [everybody.pseudonyms[place] for place in places]
    assert torch.equal(
        fewer.rows(np.arange(count)).columns["tokens"], everybody.rows(np.array(places)).columns["tokens"]
    )


def test_most_keeps_the_windows_of_least_hash(verse: Path) -> None:
    everything, fewer = PoemsTask(folder=verse).users(), PoemsTask(folder=verse, most=1).users()
    assert len(everything) == len(fewer)
    assert fewer.sizes.max() == 1
    rank = everything.rows(np.arange(len(everything))).columns["rank"]
    assert (rank == 0).sum() == len(fewer)


def test_tables_with_empty_or_foreign_files_are_refused(tmp_path: Path) -> None:
    for content, says in (
        (b"[]", "hold no poem"),
        (b'[{"author": 1}]', "no list of poems"),
        (b"{", "no list of poems"),
    ):
        members = archive_of(SONG) | {f"{poems.FOLDER}/poet.song.0.json": content}
        source, archive = pinned(POEMS, members, tmp_path)
        with pytest.raises(BadInput, match=says):
            fetch(source, tmp_path / "data", archive)


@pytest.mark.parametrize(
    ("settings", "trained"),
    [
        ({}, 165_908),
        ({"width": 32}, 75_764),
        ({"trained": "adapters", "rank": 4}, 5_076),
        ({"trained": "adapters", "rank": 8}, 8_148),
        ({"trained": "last"}, 2_132),
    ],
)
def test_only_what_is_trained_travels(settings: dict[str, object], trained: int) -> None:
    task = PoemsTask.configured(PoemsTask.Parameters(**settings))
    assert Schema.of(task.build_model()).numel == trained


def test_poems_train_and_score(verse: Path) -> None:
    for trained in ("all", "adapters"):
        task = PoemsTask(width=8, trained=trained, folder=verse, scored="train")  # type: ignore[arg-type]
        train(task, 3)
    scores = task.evaluate(task.build_model())
    assert scores["nats"] == pytest.approx(np.log(poems.SYMBOLS), rel=0.2)
    assert set(scores) == {"accuracy", "accuracy_characters", "nats"}


def test_a_model_sees_no_later_character() -> None:
    model = PoemsTask(width=8).build_model()
    tokens = torch.randint(1, 2000, (2, LENGTH))
    later = tokens.clone()
    later[:, 20:] = 7
    one, other = model(tokens), model(later)
    torch.testing.assert_close(one[:, :20], other[:, :20])
    assert not torch.allclose(one[:, 20:], other[:, 20:])


def test_accuracy_counts_what_the_rule_counts(verse: Path) -> None:
    """A model that always answers symbol 2 is right where that stands; unknown, end and padding do not count."""

    class Always(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            outputs = torch.zeros(*inputs.shape, poems.SYMBOLS)
            outputs[..., 2] = 1
            return outputs

    task = PoemsTask(folder=verse, scored="train")  # type: ignore[arg-type]
    _, targets = task.prepare(task.users().rows(np.arange(len(task.users()))).columns)
    word = (targets >= 1) & (targets <= 2000)
    scores = task.evaluate(Always())
    assert scores["accuracy"] == pytest.approx(float((targets == 2).sum() / word.sum()))
    assert scores["accuracy_characters"] == 0


def test_a_base_model_is_named_by_its_hash(verse: Path, tmp_path: Path) -> None:
    """Two of them lie in one folder."""
    base = PoemsTask(width=8).build_model()
    digests = []
    for more in (1, 2):
        content = save({name: value.contiguous() + more for name, value in base.state_dict().items()})
        digests.append(hashlib.sha256(content).hexdigest())
        (tmp_path / poems.base_name(digests[-1])).write_bytes(content)
    for more, digest in enumerate(digests, start=1):
        adapted = PoemsTask(width=8, trained="adapters", base=digest, folder=tmp_path).build_model()
        torch.testing.assert_close(adapted.get_parameter("positions"), base.get_parameter("positions") + more)
        assert not adapted.get_parameter("qkv.up").any()
    with pytest.raises(BadInput, check=coded("wrong-form", "task.base")):
        PoemsTask(width=12, base=digests[0], folder=tmp_path).build_model()
    with pytest.raises(BadInput, check=coded("not-found", "task.base", "base.py")):
        PoemsTask(width=8, base=digests[0], folder=verse).build_model()
    (tmp_path / poems.base_name(digests[0])).write_bytes(b"other bytes")
    with pytest.raises(BadInput, check=coded("differs")):
        PoemsTask(width=8, base=digests[0], folder=tmp_path).build_model()


def test_adapters_start_at_the_base_model() -> None:
    tokens = torch.randint(1, 2000, (2, 5))
    plain = PoemsTask(width=8).build_model()
    adapted = PoemsTask(width=8, trained="adapters").build_model()
    adapted.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(plain(tokens), adapted(tokens))
