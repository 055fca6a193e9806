"""Passes as machine code: the same bits as numpy's, from when they pay, and numpy where numba is missing or differs."""

import sys

import numpy as np
import pytest
import torch

from fieldfare import privatise
from fieldfare.noise import SecureNoise, compiled, staircase
from fieldfare.noise.compiled import Pass
from fieldfare.privatise import Grid


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> tuple[Pass, Pass]:
    """The two passes as a process has them that has drawn nothing, in place of this process's own."""
    made = tuple(Pass(old._passes, old._loop, old._signature) for old in (staircase._climb, privatise._add_anchored))
    monkeypatch.setattr(staircase, "_climb", made[0])
    monkeypatch.setattr(privatise, "_add_anchored", made[1])
    return made


def release(numbers: int) -> bytes:
    total = torch.arange(numbers, dtype=torch.float64) * 2.0**-20
    noise = SecureNoise(bytes(32)).standard_normal(numbers, row=3, offset=5, dtype=torch.float64)
    return Grid(2.0**-20).add_noise_(total, noise, 1.3).numpy().tobytes()


def test_a_release_has_the_same_bits_before_and_after_its_passes_are_compiled(fresh: tuple[Pass, Pass]) -> None:
    pytest.importorskip("numba")
    numbers = 3 * staircase._BLOCK + 77
    by_numpy = release(numbers)
    assert [each._fastest for each in fresh] == [each._passes for each in fresh]
    for each in fresh:
        each._left = 0
    assert release(numbers) == by_numpy  # the first block by both
    assert all(each._fastest is not each._passes for each in fresh)
    assert release(numbers) == by_numpy


@pytest.mark.parametrize("wild", [0.0, -0.0, 2.0**-21, 1e-300, 2.0**30, 2.0**49, np.inf, -np.inf, np.nan])
def test_sums_that_a_grid_may_not_hold_are_left_alone_by_either(fresh: tuple[Pass, Pass], wild: float) -> None:
    pytest.importorskip("numba")
    adding, rng = fresh[1], np.random.default_rng(1)

    def drawn() -> list[np.ndarray]:
        return [np.rint(rng.standard_normal(100) * 2**30) * 2.0**-20, rng.standard_normal(100)]

    adding._left = 0
    assert adding(*drawn(), 1.5, 2.0**-20)
    assert adding._fastest is not adding._passes
    for where in (0, 1):
        arrays = drawn()
        arrays[where][17] = wild
        copies = [array.copy() for array in arrays]
        said = adding(*arrays, 1.5, 2.0**-20)
        assert adding._passes(*copies, 1.5, 2.0**-20) == said
        assert copies[0].tobytes() == arrays[0].tobytes()
        assert said == bool(np.isfinite(wild) and abs(wild) < 2.0**29)


def test_the_compiler_waits_until_it_pays(fresh: tuple[Pass, Pass], monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(Pass, "_compile", lambda self, *arrays: tried.append(len(arrays[0])))
    words = np.arange(8, dtype=np.int64)
    fresh[0](np.empty(8), words, staircase._table().uniforms)
    assert not tried
    fresh[0]._left = 8
    for _ in range(3):
        fresh[0](np.empty(8), words.copy(), staircase._table().uniforms)
    assert tried == [8]  # once
    assert compiled.WORTH >= 1 << 28


def test_numpy_goes_on_where_numba_is_missing_or_differs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def double(out: np.ndarray) -> None:
        out *= 2

    def triple(out: np.ndarray) -> None:
        for i in range(out.size):
            out[i] *= 3

    for missing in (True, False):
        with monkeypatch.context() as patch:
            if missing:
                patch.setitem(sys.modules, "numba", None)
            else:
                pytest.importorskip("numba")
            one = Pass(double, triple, "void(float64[::1])")
            one._left = 0
            for _ in range(2):
                out = np.ones(4)
                one(out)
                assert out.tolist() == [2.0] * 4
            assert bool(caplog.records) is not missing
