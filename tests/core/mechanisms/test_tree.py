"""Binary trees: nodes, decoders, sensitivities against enumeration and against other people's numbers, streams."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare import mechanisms
from fieldfare.accounting.gaussian import gaussian_epsilon
from fieldfare.errors import BadInput
from fieldfare.factorization.dyadic import closing, node_count, nodes
from fieldfare.factorization.tree_patterns import largest_square_sum, node_norms
from fieldfare.mechanisms.base import Mechanism
from fieldfare.mechanisms.tree import OnlineTree, read_rows, tree_matrix, tree_sensitivity
from fieldfare.noise import CHUNK, SecureNoise
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from fieldfare.streams.base import HorizonError
from fieldfare.streams.ops import DEVICE
from oracles.dyadic import compose
from support.refusals import Coded, coded

KEY = b"a fixed key for tests, 32 bytes!"
REFERENCE = json.loads((Path(__file__).parents[2] / "reference" / "tree.json").read_text())["rows"]
VARIANTS = [("plain", "read"), ("plain", "all"), ("online", "all"), ("online", None), ("full", "all")]


def build(estimator: str, rounds: int, nodes: str | None = None) -> Mechanism:
    return mechanisms.build({"kind": "tree", "estimator": estimator, "nodes": nodes}, rounds=rounds)


def charged_matrix(mechanism: Mechanism, n: int) -> np.ndarray:
    """Whose columns a user is charged for: R = L^-1 with B B^T = L L^T where the released numbers count, else C."""
    if isinstance(mechanism, OnlineTree) and not mechanism.all_nodes:
        b = mechanism.noising_matrix(n)
        return np.linalg.inv(np.linalg.cholesky(b @ b.T))
    return mechanism.strategy_matrix(n)


def worst(c: np.ndarray, participation: Participation, rounds: int) -> float:
    return max(float(np.linalg.norm(c[:, list(p)].sum(axis=1))) for p in participation.patterns(rounds))


def row(name: str) -> float:
    return next(float(r["value"]) for r in REFERENCE if r["id"] == name)


def rows(name: str) -> list[list[float]]:
    return next(r["value"] for r in REFERENCE if r["id"] == name)


def test_compose_test_vectors() -> None:
    assert compose(1, 7) == [(1, 4), (5, 6), (7, 7)]
    assert compose(1, 12) == [(1, 8), (9, 12)]
    assert compose(3, 10) == [(3, 4), (5, 8), (9, 10)]
    assert compose(5, 8) == [(5, 8)]
    assert compose(2, 16) == [(2, 2), (3, 4), (5, 8), (9, 16)]


def test_compose_is_a_short_disjoint_cover_of_every_range() -> None:
    longest: dict[int, int] = {}
    for first in range(1, 200):
        for last in range(first, 300):
            found = compose(first, last)
            assert found[0][0] == first
            assert found[-1][1] == last
            for (_, end), (start, _) in itertools.pairwise(found):
                assert start == end + 1
            for a, z in found:
                size = z - a + 1
                assert size & (size - 1) == 0
                assert (a - 1) % size == 0
            length = last - first + 1
            assert len(found) <= 2 * (1 + (length - 1).bit_length())
            if first == 1:
                assert len(found) == last.bit_count()
            longest[length] = max(longest.get(length, 0), len(found))
    assert [longest[n] for n in (4, 8, 16, 32, 64)] == [3, 4, 5, 6, 7]
    with pytest.raises(BadInput, check=coded("bad-input", "rounds [3, 2]")):
        compose(3, 2)


def test_nodes_in_order_of_closing() -> None:
    assert list(nodes(4)) == [(1, 1), (2, 2), (1, 2), (3, 3), (4, 4), (3, 4), (1, 4)]
    assert closing(4) == [(4, 4), (3, 4), (1, 4)]
    for n in range(40):
        assert len(list(nodes(n))) == node_count(n)


@pytest.mark.parametrize("identifier", [r["id"] for r in REFERENCE if r["id"].startswith("tree_zeta")])
def test_zeta_of_the_whole_tree(identifier: str) -> None:
    found = next(r for r in REFERENCE if r["id"] == identifier)
    p = found["params"]
    value = tree_sensitivity(MinSeparation(p["b"], p["k"]), p["n"], read_only=False)
    assert value.bound == "exact"
    assert value**2 == pytest.approx(found["value"], rel=1e-12)
    assert build("online", p["n"], "all").sensitivity(MinSeparation(p["b"], p["k"])) == value


def test_zeta_of_the_large_settings() -> None:
    assert largest_square_sum(2052, 342, 6, read_only=False) == (118, True)
    assert largest_square_sum(512, 128, 4, read_only=False) == (56, True)
    assert largest_square_sum(2000, 314, 6, read_only=False) == (79, True)
    for k, between, n, zeta in rows("pub_tfp_zeta_toy"):
        assert largest_square_sum(n, between + 1, k, read_only=False) == (zeta, True)


def test_what_is_never_read_costs_nothing() -> None:
    """The same three settings when only the nodes that the plain decoder reads are charged: proven in `tree.py`."""
    assert largest_square_sum(2000, 314, 6, read_only=True) == (67, True)
    assert largest_square_sum(2052, 342, 6, read_only=True) == (98, True)
    assert largest_square_sum(512, 128, 4, read_only=True) == (50, True)
    setting = MinSeparation(314, 6)
    assert build("plain", 2000).sensitivity(setting) ** 2 == pytest.approx(67, rel=1e-12)
    assert build("plain", 2000, "all").sensitivity(setting) ** 2 == pytest.approx(79, rel=1e-12)


def test_periodic_participation() -> None:
    for n, b in [(4, 2), (2000, 314), (2052, 342)]:
        rho = tree_sensitivity(FixedOrder(b), n, read_only=False) ** 2 / 2
        assert rho == pytest.approx(row(f"tree_periodic_zcdp_n{n}_b{b}"), rel=1e-12)
    for sigma, n, b, rho in rows("pub_fcp_tree_zcdp"):
        value = build("online", n, "all").sensitivity(CyclicPoisson(b, 0.5))
        assert value**2 / 2 / sigma**2 == pytest.approx(rho, rel=1e-12)
        assert value.bound == "exact"


def test_the_evenly_spaced_pattern_is_not_always_the_worst() -> None:
    """8 of 24 rounds at least 3 apart: 88, but only 86 when exactly 3 apart. It happens in many settings."""
    assert largest_square_sum(24, 3, 8, read_only=False) == (88, True)
    assert node_norms([range(s, 24, 3) for s in range(3)], 24, read_only=False).max() ** 2 == pytest.approx(86)
    found = 0
    for n in range(10, 60):
        for b in range(2, 14):
            equal = node_norms([range(s, n, b) for s in range(b)], n, read_only=False).max() ** 2
            any_gaps, exact = largest_square_sum(n, b, n, read_only=False)
            assert exact
            assert any_gaps >= round(equal)
            found += any_gaps > round(equal)
    assert found > 20


ERRORS = [r for r in REFERENCE if re.match(r"tree_(plain|honaker)_(max|mean|last)(err|loss)_n\d+", r["id"])]


@pytest.mark.parametrize("reference", ERRORS, ids=[r["id"] for r in ERRORS])
def test_errors_of_the_streaming_decoders(reference: dict[str, object]) -> None:
    name = str(reference["id"])
    n = int(re.search(r"_n(\d+)", name)[1])  # type: ignore[index]
    p = reference["params"]
    assert isinstance(p, dict)
    mechanism = build("plain" if "plain" in name else "online", n, "all")
    participation = MinSeparation(p["b"], p["k"]) if "b" in p else Single()
    squared = mechanism.sensitivity(participation) ** 2 if "loss" in name else 1.0
    variance = mechanism.prefix_row_norms() ** 2
    found = variance.max() if "max" in name else variance[-1] if "last" in name else variance.mean()
    assert squared * found == pytest.approx(reference["value"], rel=1e-10)


def test_published_variances_of_the_online_decoder() -> None:
    for n, variance in rows("pub_honaker_var"):
        assert build("online", n).prefix_row_norms()[-1] ** 2 == pytest.approx(variance, rel=1e-12)


def test_a_batch_used_twice_in_four_rounds() -> None:
    """Order [0, 1, 2, 1]: batch 1 is in rounds 1 and 3 of the whole tree."""
    patterns = [(0,), (1, 3), (2,)]
    assert node_norms(patterns, 4, read_only=False).max() ** 2 == pytest.approx(row("tree_order_sens2"), rel=1e-12)
    assert build("online", 4, "all").pattern_norms(patterns).max() ** 2 == pytest.approx(
        row("tree_order_sens2"), rel=1e-12
    )


@pytest.mark.parametrize("n", [16, 64])
def test_errors_of_the_full_decoder(n: int) -> None:
    full = build("full", n)
    assert full.max_error(n, Single()) ** 2 == pytest.approx(row(f"tree_fullhonaker_max_n{n}"), rel=1e-9)
    if n == 64:
        assert full.mean_error(n, Single()) ** 2 == pytest.approx(row("tree_fullhonaker_mean_n64"), rel=1e-9)
    assert float(full.sensitivity(Single())) == pytest.approx(row(f"tree_sens_n{n}"), rel=1e-9)


def test_the_full_decoder_is_the_pseudo_inverse_of_the_tree() -> None:
    """Same noise covariance as C^+ and the same cost of every pattern, in lower-triangular form."""
    n = 21
    tree, full = tree_matrix(n), build("full", n)
    b = full.noising_matrix(n)
    pseudo = np.linalg.pinv(tree)
    np.testing.assert_allclose(b @ b.T, pseudo @ pseudo.T, atol=1e-12)
    patterns = [(0,), (3, 9, 20), tuple(range(n))]
    np.testing.assert_allclose(full.pattern_norms(patterns), node_norms(patterns, n, read_only=False), rtol=1e-12)


def test_the_best_estimate_from_the_nodes_so_far_is_the_online_one() -> None:
    for n in range(1, 33):
        tree = tree_matrix(n)
        least_squares = np.ones(n) @ np.linalg.pinv(tree)
        assert np.linalg.norm(least_squares) == pytest.approx(build("online", n).prefix_row_norms()[-1], rel=1e-10)


@pytest.mark.parametrize(("estimator", "nodes"), VARIANTS)
@pytest.mark.parametrize("n", [1, 2, 7, 64, 257])
def test_noising_inverts_strategy_and_the_stream_applies_it(estimator: str, nodes: str, n: int) -> None:
    mechanism = build(estimator, n, nodes)
    c, b = mechanism.strategy_matrix(n), mechanism.noising_matrix(n)
    np.testing.assert_allclose(b @ c, np.eye(n), atol=1e-10)
    np.testing.assert_allclose(mechanism.row_norms(), np.linalg.norm(b, axis=1), rtol=1e-10)
    prefix = np.linalg.norm(np.cumsum(b, axis=0), axis=1)
    np.testing.assert_allclose(mechanism.prefix_row_norms(), prefix, rtol=1e-10)
    half = (n + 1) // 2
    rows = len(mechanism.strategy_matrix(half))
    np.testing.assert_array_equal(mechanism.strategy_matrix(half), c[:rows, :half])
    np.testing.assert_allclose(mechanism.noising_matrix(half), b[:half, :rows], atol=1e-12)

    noise = SecureNoise(KEY)
    z = np.stack([noise.standard_normal(3, row=r, dtype=torch.float64).numpy() for r in range(len(c))])
    stream = mechanism.stream(3, noise, dtype=torch.float64)
    expected = b @ z
    for t in range(n):
        if estimator == "full" and n > 64 and t % 32 and t != n - 1:
            stream.skip(t + 1)  # every row would draw 33 000 vectors again
        else:
            np.testing.assert_allclose(stream.next().numpy(), expected[t], atol=1e-12)
    with pytest.raises(HorizonError, match=f"round {n}"):
        stream.next()


@pytest.mark.parametrize(("estimator", "nodes"), VARIANTS)
def test_resume_and_skip_at_every_round_bit_for_bit(estimator: str, nodes: str) -> None:
    n = 37
    mechanism = build(estimator, n, nodes)
    whole = mechanism.stream(5, SecureNoise(KEY))
    expected, states = [], []
    for _ in range(n):
        states.append(whole.state_dict())
        expected.append(whole.next())
    jumping = mechanism.stream(5, SecureNoise(KEY))
    for t in [*range(n), *reversed(range(n))]:
        jumping.skip(t)
        assert jumping.round == t
        assert torch.equal(jumping.next(), expected[t])
    for t in range(n):
        resumed = mechanism.stream(5, SecureNoise(KEY))
        resumed.load_state_dict(states[t])
        for later in range(t, min(n, t + 9)):
            assert torch.equal(resumed.next(), expected[later])
    with pytest.raises(BadInput, check=coded("out-of-range", "skip to round")):
        jumping.skip(n + 1)
    with pytest.raises(BadInput, check=coded("differs", "noise state")):
        mechanism.stream(5, SecureNoise(bytes(32))).load_state_dict(states[3])


@pytest.mark.parametrize("estimator", ["plain", "online"])
def test_neither_threads_nor_chunks_nor_the_branch_for_accelerators_change_the_noise(estimator: str) -> None:
    numel = 2 * CHUNK + 4099
    mechanism = build(estimator, 8)
    one = mechanism.stream(numel, SecureNoise(KEY, threads=1))
    two = mechanism.stream(numel, SecureNoise(KEY, threads=2))
    tensors = mechanism.stream(numel, SecureNoise(KEY, threads=1))
    tensors._ops = DEVICE  # type: ignore[attr-defined]  # the same code as on CUDA
    tail = SecureNoise(KEY)
    for t in range(8):
        row = one.next()
        assert torch.equal(row, two.next())
        torch.testing.assert_close(tensors.next(), row, rtol=1e-5, atol=1e-5)
        if estimator == "plain" and t % 2 == 0:
            assert torch.equal(row[-9:], tail.standard_normal(9, row=t, offset=numel - 9))


def test_plain_and_online_keep_log2_vectors() -> None:
    for n, vectors in [(1, 0), (2, 1), (63, 5), (64, 6), (2000, 10)]:
        for estimator in ("plain", "online"):
            mechanism = build(estimator, n)
            assert mechanism.buffers == vectors
            assert mechanism.stream(2, SecureNoise(KEY)).state_dict()["buffers"].shape == (vectors, 2)


def test_restarts_stamp_the_tree() -> None:
    mechanism = mechanisms.build({"kind": "tree", "estimator": "online", "restart_every": 5}, rounds=12)
    c, b = mechanism.strategy_matrix(12), mechanism.noising_matrix(12)
    np.testing.assert_allclose(b @ c, np.eye(12), atol=1e-12)
    noise = SecureNoise(KEY)
    z = np.stack([noise.standard_normal(2, row=r, dtype=torch.float64).numpy() for r in range(len(c))])
    stream = mechanism.stream(2, noise, dtype=torch.float64)
    np.testing.assert_allclose(np.stack([stream.next().numpy() for _ in range(12)]), b @ z, atol=1e-12)
    whitened = np.linalg.inv(np.linalg.cholesky(b @ b.T))
    for participation in (MinSeparation(3, 3), FixedOrder(4)):
        assert mechanism.sensitivity(participation) >= worst(whitened, participation, 12) - 1e-9


@settings(max_examples=60, deadline=None)
@given(
    rounds=st.integers(1, 14),
    separation=st.integers(1, 8),
    count=st.integers(1, 5),
    variant=st.sampled_from(VARIANTS),
    scheme=st.sampled_from(["min-separation", "fixed-order"]),
    released=st.integers(1, 14),
)
def test_sensitivity_against_every_pattern(
    rounds: int, separation: int, count: int, variant: tuple[str, str], scheme: str, released: int
) -> None:
    released = min(released, rounds)
    mechanism = build(variant[0], rounds, variant[1])
    participation: Participation = MinSeparation(separation, count)
    if scheme == "fixed-order":
        participation = FixedOrder(separation, count)
    value = mechanism.sensitivity(participation, released)
    brute = worst(charged_matrix(mechanism, released), participation, released)
    assert value >= brute * (1 - 1e-9)
    if value.bound == "exact":
        assert value <= brute * (1 + 1e-9)
    if variant[0] != "full":
        assert value.bound == "exact"
    if released > 1:
        assert value >= mechanism.sensitivity(participation, released - 1) * (1 - 1e-12)


def test_the_online_tree_is_charged_for_what_it_releases() -> None:
    """Gboard: 79 nodes, of which 70.3 can be seen; never more than all nodes, after any number of rounds."""
    setting = MinSeparation(314, 6)
    online = build("online", 2000)
    value = online.sensitivity(setting)
    assert (value**2, value.bound) == (pytest.approx(70.30117314826, rel=1e-12), "exact")
    everything = OnlineTree(2000, all_nodes=True)
    assert everything.sensitivity(setting) ** 2 == pytest.approx(79, rel=1e-12)
    assert gaussian_epsilon(value / 7, 1e-10) == pytest.approx(7.9906776, abs=1e-7)
    witness = [(20, 340, 660, 980, 1364, 1706)]
    assert online.pattern_norms(witness)[0] ** 2 == pytest.approx(70.30117314826, rel=1e-12)
    last = 0.0
    for n in (1, 313, 314, 315, 700, 1024, 1365, 1707, 1999, 2000):
        part = online.sensitivity(setting, n)
        assert part.bound == "exact"
        assert last <= part <= everything.sensitivity(setting, n)
        assert part >= online.pattern_norms(witness, n)[0] * (1 - 1e-12)
        last = part


def test_where_its_program_would_take_minutes_the_online_tree_is_charged_for_all_nodes() -> None:
    setting = MinSeparation(10)
    online = build("online", 2000)
    assert online.sensitivity(setting) == OnlineTree(2000, all_nodes=True).sensitivity(setting)
    # Every pattern under Poisson sampling is part of one, so no program is needed.
    everything = build("online", 300).sensitivity(Poisson(0.1))
    matrix = charged_matrix(build("online", 300), 300)
    assert (everything, everything.bound) == (pytest.approx(np.linalg.norm(matrix.sum(axis=1)), rel=1e-10), "exact")


@pytest.mark.parametrize(("released", "squared"), [(128, 21.6293778), (300, 62.7601730), (512, 110)])
def test_the_full_tree_after_part_of_its_rounds_is_charged_for_them(released: int, squared: float) -> None:
    full, setting = build("full", 512), MinSeparation(80, 6)
    value = full.sensitivity(setting, released)
    assert (value**2, value.bound) == (pytest.approx(squared, rel=5e-9), "exact")


def test_other_participations() -> None:
    mechanism = build("plain", 9)
    c = mechanism.strategy_matrix(9)
    everything = mechanism.sensitivity(Poisson(0.1))
    assert everything.bound == "exact"
    assert everything == pytest.approx(np.linalg.norm(c.sum(axis=1)))
    assert mechanism.sensitivity(Single()) == pytest.approx(np.linalg.norm(c, axis=0).max())


def test_large_horizons_get_an_upper_bound_that_says_so() -> None:
    whole, exact = largest_square_sum(20_000, 1_000, 20, read_only=False)
    read, read_exact = largest_square_sum(20_000, 1_000, 20, read_only=True)
    assert exact
    assert not read_exact
    evenly = node_norms([range(0, 20_000, 1_000)], 20_000, read_only=True)[0] ** 2
    assert evenly <= read <= whole


def test_pattern_norms_of_many_users_at_once() -> None:
    random = np.random.default_rng(0)
    patterns = [np.flatnonzero(random.random(23) < 0.3) for _ in range(200)] + [np.array([], dtype=int)]
    for estimator, charged in VARIANTS:
        mechanism = build(estimator, 23, charged)
        for released in (23, 17):
            c = charged_matrix(mechanism, released)
            expected = [np.linalg.norm(c[:, p[p < released]].sum(axis=1)) for p in patterns]
            found = mechanism.pattern_norms(patterns, released)
            if estimator == "full" and released < 23:
                assert (found >= np.array(expected) - 1e-12).all()
            else:
                np.testing.assert_allclose(found, expected, rtol=1e-10)
        with pytest.raises(BadInput, check=coded("out-of-range", "pattern")):
            mechanism.pattern_norms([(1, 2), (2, 1)])
        with pytest.raises(BadInput, check=coded("out-of-range", "pattern")):
            mechanism.pattern_norms([(-1,)])


def test_read_rows_are_the_largest_nodes() -> None:
    matrix = tree_matrix(13)[read_rows(13)]
    for t in range(13):
        size = (t + 1) & -(t + 1)
        np.testing.assert_array_equal(np.flatnonzero(matrix[t]), np.arange(t + 1 - size, t + 1))


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"estimator": "best"}, coded("value-wrong", "mechanism.estimator")),
        ({"nodes": "some"}, coded("value-wrong", "mechanism.nodes")),
        ({"depth": 3}, coded("key-unknown", "mechanism.depth")),
        ({"restart_every": 0}, coded("value-wrong", "mechanism.restart_every")),
    ],
)
def test_bad_specs_are_named(spec: dict[str, object], names: Coded) -> None:
    with pytest.raises(BadInput, check=names):
        mechanisms.build({"kind": "tree", **spec}, rounds=8)


def test_bad_rounds() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "rounds = 4096")):
        build("full", 4096)
    mechanism = build("online", 8)
    for n in (0, 9):
        with pytest.raises(BadInput, check=coded("out-of-range", f"rounds = {n}")):
            mechanism.sensitivity(Single(), n)
