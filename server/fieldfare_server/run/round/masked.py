"""A round's sum where the server reads no single update: masked words are added, the set is closed, and opened once.

    add words -> CLOSE (durable) -> ask the blinder -> open -> noise -> read

Training is deterministic, so two opened sums of one round would differ by one node's update, exactly. So a closed
round is committed or its run ends: there is no other attempt and no smaller set, whatever crashes; and no
check, cut or void looks at an opened sum before it is noised.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fieldfare.blinder_noise import terms_of
from fieldfare.errors import BadInput, CheckpointError, Interrupted, LedgerError, OutOfTurn
from fieldfare.lazily import torch
from fieldfare.masking.boxes import read_key
from fieldfare.masking.receipts import BlinderWentBack, Receipts
from fieldfare.masking.words import RINGS, Words
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare_flower.masked import Hello, Masking, MasksAsked, Seal, digest_of_config, digest_of_instruction
from fieldfare_flower.messages import Occasion
from fieldfare_flower.npy import BadReply
from fieldfare_flower.run_configuration import run_configuration
from fieldfare_server import faults
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.ledger import OpenRound
from fieldfare_server.run.presence.selection import Users
from fieldfare_server.run.pricing import blinder_noise_of, numbers_released
from fieldfare_server.run.rehearsal import Account
from fieldfare_server.run.round.aggregation import RoundSum
from fieldfare_server.run.round.running_noise import RunningNoise


class BlinderLike(Protocol):
    """The party that knows the masks."""

    public_key: str

    def hello(self, run: str, plan: str) -> Hello:
        """Whom it answers for, and whether in `run`, of `plan`. Raises `Interrupted` where it is not there."""

    def answer(self, content: RecordDict) -> RecordDict:
        """The answer to a question (`fieldfare_flower.masked.MasksAsked`). Raises `Refused`."""


@dataclass
class MaskedSum(RoundSum):
    """The running sum of one attempt at one round: words, each under its node's mask."""

    asked: MasksAsked  # the question about it, so far: every reply must be for it
    admitted: frozenset[str] = frozenset()  # keys of the nodes whose replies the blinder opens
    shares: tuple[float, ...] = (1.0,)  # of the round's privacy, of each query
    words: Words = field(init=False)

    def __post_init__(self) -> None:
        self.words = np.zeros(self.asked.numel, RINGS[self.asked.bits][0])

    def add(self, content: RecordDict, sent: int, node: int) -> bool:
        """Add the reply of `node`, which was asked to train `sent` users; returns whether the sum includes it.

        What it adds cannot be bounded here: a node that lies spoils the sum, and no other user's privacy. Of
        a node whose box the blinder would not open, or twice, nothing is added.
        """
        reply = self.usable(lambda: self._read(content, sent, node))
        if reply is None:
            return False
        words, users, seal = reply
        # Overflow is meant: masks and sums count modulo the ring, and nothing here can be read before they are off.
        self.words += words
        self.users += users
        self.asked = replace(self.asked, nodes=(*self.asked.nodes, node), seals=(*self.asked.seals, seal))
        return True

    def _read(self, content: RecordDict, sent: int, node: int) -> tuple[Words, int, Seal]:
        words, users, seal = self.asked.read_reply(content, node, sent)
        if seal.key not in self.admitted or any(seal.key == other.key for other in self.asked.seals):
            raise BadReply("node-key", "the blinder has not admitted the node, or it answered already")
        return words, users, seal

    def ride(self, metrics: tuple[float, ...]) -> None:
        """Refuse numbers in clear: what rides is under the mask."""
        raise LedgerError("a masked sum", "no number of a user is added to it in clear.")


@dataclass(eq=False)
class OpenedSum:
    """The sum of a closed round without its masks. It has no numbers: they are read after the noise has joined."""

    words: Words
    users: int
    shares: tuple[float, ...]
    rejects: Counter[str]
    receipt: str  # what the blinder signed of its answer

    def feed(self, digest: hashlib._Hash) -> None:
        """Hash what the round's nonce is bound to."""
        digest.update(self.words.data)

    def privatise(self, noise: RunningNoise) -> torch.Tensor:
        """The sum that may be released, float64 (numel,). The words are gone then."""
        return noise.privatise_words(vars(self).pop("words"))


@dataclass(frozen=True, eq=False)
class ClosedSum:
    """A round whose set is final."""

    opened: OpenRound
    total: MaskedSum
    reported: Sequence[Users]  # the users of each node, as indices

    def write(self, files: RunFiles) -> str:
        """Make it durable; returns its digest."""
        total, asked = self.total, self.total.asked
        seals = [[seal.box.hex(), seal.key, seal.signature.hex()] for seal in asked.seals]
        reported = [users.tolist() for users in self.reported]
        meta = {"attempt": asked.attempt, "nodes": list(map(str, asked.nodes)), "reported": reported}
        meta |= {"seals": seals, "shares": list(total.shares), "rejects": dict(total.rejects)}
        meta |= {"users": total.users, "bits": asked.bits, "instruction": asked.instruction}
        signed = total.words.view(RINGS[asked.bits][1])
        return files.write_closing(self.opened.index, {"words": torch.from_numpy(signed)}, meta)

    @classmethod
    def read(cls, opened: OpenRound, run: str, plan: str, files: RunFiles) -> ClosedSum:
        """The round that `write` wrote, under `plan`. Raises `CheckpointError` if it is missing, or another."""
        assert opened.closing is not None
        held = files.closing(opened.closing)
        meta: dict[str, Any] = held.meta
        if (held.round, meta.get("attempt")) != (opened.index, opened.attempt):
            raise CheckpointError(f"closed round {opened.index} of run {run}", "its file is of another round.")
        signed, bits = held.tensors["words"].numpy(), int(meta["bits"])
        seals = tuple(Seal(bytes.fromhex(box), key, bytes.fromhex(mark)) for box, key, mark in meta["seals"])
        # Where an earlier version closed it, its boxes open no more.
        said = signed.size, bits, plan, meta.get("instruction", ""), tuple(map(int, meta["nodes"])), seals
        total = MaskedSum(MasksAsked(run, opened.index, opened.attempt, *said), shares=tuple(meta["shares"]))
        total.words, total.users = signed.view(RINGS[bits][0]), int(meta["users"])
        total.rejects = Counter(meta["rejects"])
        return cls(opened, total, [np.asarray(users, np.int64) for users in meta["reported"]])


class MaskedSums:
    """The masked side of one run."""

    # Set by `meet`: the blinder, a digest of the run's configuration, and what blinders signed of this ledger's rounds.
    _blinder: BlinderLike
    _config: str
    _receipts: Receipts

    def __init__(
        self, plan: Plan, account: Account, files: RunFiles, noise: RunningNoise, numel: int, multiplier: float
    ) -> None:
        """numel: numbers that a round releases. multiplier: least one of the blinder's own noise; 0: it adds none."""
        self._multiplier = multiplier
        self._plan, self._account, self._files, self._noise, self._numel = plan, account, files, noise, numel
        self._digest = plan.digest()
        self._admitted, self._instruction = frozenset[str](), ""  # the newest messages', of all nodes
        # Where the blinder's journal ended when it answered last: nodes are told, and know one that went back.
        self.head = ""
        self.closed: ClosedSum | None = None  # the round that is closed and not committed

    def meet(self, blinder: BlinderLike, grid: Grid, run_config: Mapping[str, object]) -> None:
        """`blinder` is the one that knows the masks. run_config: as nodes read it, where `grid` cannot show it."""
        shown = run_configuration(grid)
        self._config = digest_of_config(run_config if shown is None else shown)
        # Before it is asked anything: whatever end of its journal it tells, there is a row for each of them.
        self._blinder, self._receipts = blinder, Receipts(self._account.receipts())

    def denied(self) -> BlinderWentBack | None:
        """The refusal of a blinder that went back: its journal's end, where it told one, is before a receipt."""
        return self._receipts.denied_by(self.head)

    def require_approval(self) -> None:
        """Raise `Interrupted` unless the blinder is there and has approved the plan. It is asked once a session."""
        if self._admitted:
            return
        hello = self._blinder.hello(self._account.id, self._digest)
        run = f"run {self._account.id}: the blinder"
        if hello.noise is None:
            todo = "or its own budget has no room for it: `fieldfare blinder approve`, `fieldfare blinder status`."
            raise Interrupted(f"{run} has not approved its plan, {self._digest}, {todo}")
        least = terms_of(self._multiplier, self._noise.privatiser)
        if not (hello.noise[:1] >= least[:1] and hello.noise[1:] == least[1:]):  # as much of it, in the same cells
            why = f"is {hello.noise or 'none'}, and not {least or 'none'} as in this run"
            raise Interrupted(f"{run}'s own noise {why}: other versions, or another model.")
        self._admitted, self.head = hello.nodes, self.head or hello.head

    def instruct(self, messages: Sequence[Message], shares: tuple[float, ...]) -> None:
        """Tell the nodes how to mask their replies."""
        ring, weights = (self._noise.privatiser.spacing_log2, self._noise.privatiser.bits), self._plan.riders.weights
        # A rehearsal's nodes and blinder are one process, whose files go back together.
        head = self.head if self._plan.aggregation.party else ""
        masking = Masking(self._blinder.public_key, *ring, self._digest, shares, weights, self._config, head)
        for message in messages:
            masking.write(message.content)
        self._instruction = digest_of_instruction(messages[-1].content) if messages else ""

    def empty(self, occasion: Occasion, shares: tuple[float, ...], reader: object = None) -> MaskedSum:
        """The sum, still empty, for the replies to `occasion`, which no reader but its own reads."""
        at, said = (occasion.run, occasion.round, occasion.attempt), (self._digest, self._instruction)
        return MaskedSum(MasksAsked(*at, self._numel, self._noise.privatiser.bits, *said), self._admitted, shares)

    def close(self, opened: OpenRound, total: Any, nodes: Sequence[int], reported: Sequence[Users]) -> OpenRound:
        """Make the set final, durably, before anything of it is opened; returns the round, closed."""
        closed = ClosedSum(opened, total, reported)
        # First the file, then the row: whatever crash comes between, a round that the log calls closed has its set.
        digest = closed.write(self._files)
        opened = self._account.close_round(opened, digest, len(nodes))
        self.closed = replace(closed, opened=opened)
        return opened

    def left_closed(self, opened: OpenRound) -> None:
        """A crash left `opened` closed: the same set is opened, and no other. Raises as `ClosedSum.read`."""
        self.closed = ClosedSum.read(opened, self._account.id, self._digest, self._files)

    def open(self, opened: OpenRound, total: Any) -> OpenedSum:
        """Ask the blinder, and take the masks off. The same question has the same answer, after a crash too.

        Raises `LedgerError` where the round is not closed, `Refused` where the blinder does not answer,
        `CheckpointError` where what it answered does not belong to the question.
        """
        if self.closed is None or self.closed.total is not total or opened.closing is None:
            raise OutOfTurn(f"round {opened.index} of run {self._account.id}", "it is opened before it is closed.")
        faults.point("strategy.asked")
        try:
            key = read_key(self._blinder.public_key)[1]
            masks, receipt, self.head = total.asked.read_answer(self._blinder.answer(total.asked.write()), key)
            if not receipt.noise >= self._multiplier:
                raise BadReply("round", "the blinder added less noise than the plan says")
            self._receipts.add(receipt, again=True)
            if (refused := self.denied()) is not None:
                raise refused
        except (BadReply, BadInput) as error:
            what = f"the blinder's masks of round {opened.index + 1}"
            raise CheckpointError(what, f"they are no answer: {error}") from None
        # A copy: should the rest fail, the masked words are still those that were closed.
        return OpenedSum(total.words - masks, total.users, total.shares, total.rejects, receipt.text)

    def done(self) -> None:
        """The round is committed: what would open it again goes."""
        self.closed = None
        self._files.discard()


def rehearse_masks(grid: object, plan: Plan, schema: Schema, root: Path) -> None:
    """Let nodes of this process rehearse the masks of `plan`, where it has some and names no party of its own.

    schema: of what is trained. root: where the runs are.
    """
    rehearse = getattr(grid, "rehearse_masks", None)
    if rehearse is not None and plan.aggregation.rings and not plan.aggregation.party:
        numel = numbers_released(plan, schema)
        approved = (plan.digest(), plan.aggregation.fewest_nodes, numel, blinder_noise_of(plan, numel))
        rehearse(root / ".blinder", *approved)
