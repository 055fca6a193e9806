"""A row of z is drawn under the nonce of the round in which it is first used, on every path to normals."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.noise import SecureNoise
from fieldfare.noise.discrete import DiscreteNoise, discrete_gaussian
from fieldfare.participation import MinSeparation
from fieldfare.privatise import Privatiser
from support.kinds import SPECS, Spec, fitting
from support.refusals import coded

KEY = b"a fixed key for tests, 32 bytes!"
FRESH, DIGEST = bytes(16), bytes(32)
OLD_FINGERPRINT = "7445686e850c04bb7a0f4cd65a4d06d0"
OLD_ROW = "2494fcab502e36ba464e6d3dffbe9a2507401601396469bfc93dd59534046247"
"""What the old derivation gives, computed by its last commit."""


def nonces_of(n: int, seed: int = 0) -> list[bytes]:
    return [hashlib.sha256(f"{seed} {t}".encode()).digest()[:16] for t in range(n)]


def test_a_nonce_is_the_stated_hmac_and_binds_all_its_parts() -> None:
    noise = SecureNoise(KEY)
    message = b"nonce" + (3).to_bytes(4, "big") + b"run" + (7).to_bytes(8, "big") + FRESH + DIGEST
    assert noise.nonce("run", 7, FRESH, DIGEST) == hmac.new(KEY, message, "sha256").digest()[:16]
    other = {
        noise.nonce("run", 7, FRESH, DIGEST),
        noise.nonce("rum", 7, FRESH, DIGEST),
        noise.nonce("run", 8, FRESH, DIGEST),
        noise.nonce("run", 7, bytes(15) + b"1", DIGEST),
        noise.nonce("run", 7, FRESH, bytes(31) + b"1"),
        SecureNoise(bytes(32)).nonce("run", 7, FRESH, DIGEST),
    }
    assert len(other) == 6
    for fresh, digest in ((b"", DIGEST), (FRESH, b""), (bytes(17), DIGEST)):
        with pytest.raises(BadInput, check=coded("wrong-form", "16", "32")):
            noise.nonce("run", 0, fresh, digest)


def test_a_row_under_a_nonce_is_the_row_of_the_stated_subkey() -> None:
    nonces = nonces_of(3)
    view = SecureNoise(KEY).with_nonces(nonces, lambda row: row // 2)
    for row in range(6):
        subkey = hmac.new(KEY, b"row" + nonces[row // 2], "sha256").digest()
        assert torch.equal(view.standard_normal(5, row=row), SecureNoise(subkey).standard_normal(5, row=row))
    assert torch.equal(view.from_row(2).standard_normal(5, row=1), view.standard_normal(5, row=3))


PATHS: dict[str, Callable[[SecureNoise, int], torch.Tensor]] = {
    "normal": lambda noise, row: noise.standard_normal(6, row=row, dtype=torch.float64),
    "drawer": lambda noise, row: _drawn(noise, row),
    "discrete": lambda noise, row: DiscreteNoise(noise, 1000).standard_normal(6, row=row, dtype=torch.float64),
    "discrete view": lambda noise, row: DiscreteNoise(noise.from_row(0), 1000).standard_normal(
        6, row=row, dtype=torch.float64
    ),
    "integers": lambda noise, row: torch.from_numpy(discrete_gaussian(6, 1000, noise, row=row)),
}


def _drawn(noise: SecureNoise, row: int) -> torch.Tensor:
    out = np.empty(6)
    noise.drawer("z", row, 0, 6).into(out, 0)
    return torch.from_numpy(out)


@pytest.mark.parametrize("source", ["aes-256-ctr", "philox-4x32-10"])
@pytest.mark.parametrize("path", PATHS)
def test_every_path_to_normals_depends_on_the_nonce_and_refuses_a_missing_one(path: str, source: str) -> None:
    noise, draw = SecureNoise(KEY, source=source), PATHS[path]  # type: ignore[arg-type]
    nonces = nonces_of(2)
    view = noise.with_nonces(nonces, lambda row: row)
    other = noise.with_nonces(nonces_of(2, seed=1), lambda row: row)
    assert torch.equal(draw(view, 1), draw(noise.with_nonces(list(nonces), lambda row: row), 1))
    assert not torch.equal(draw(view, 1), draw(other, 1))
    assert not torch.equal(draw(view, 1), draw(noise, 1))
    with pytest.raises(BadInput, check=coded("out-of-range", "row")):
        draw(view, 2)
    nonces.append(b"short")
    with pytest.raises(BadInput, check=coded("wrong-form", "the nonce of round")):
        draw(view, 2)


def test_other_streams_and_the_old_derivation_do_not_change() -> None:
    noise = SecureNoise(KEY, map=2)
    view = noise.with_nonces([], lambda row: row)
    assert torch.equal(view.standard_normal(5, row=0, stream="other"), noise.standard_normal(5, row=0, stream="other"))
    assert bytes(view.bytes(9, row=3, stream="blind")) == bytes(noise.bytes(9, row=3, stream="blind"))
    # Runs that were begun before there were nonces go on under this very noise.
    old = hashlib.sha256(noise.standard_normal(4, row=3, dtype=torch.float64).numpy().tobytes()).hexdigest()
    assert (noise.fingerprint(), old) == (OLD_FINGERPRINT, OLD_ROW)


def test_the_fingerprint_depends_on_every_nonce() -> None:
    noise = SecureNoise(KEY)
    for make in (lambda view: view, lambda view: DiscreteNoise(view, 50)):
        seen = {make(noise).fingerprint()}
        for nonces in ([], nonces_of(1), nonces_of(2), nonces_of(2, seed=1)):
            seen.add(make(noise.with_nonces(nonces, lambda row: row)).fingerprint())
        assert len(seen) == 5


@pytest.mark.parametrize(
    ("rounding", "restart"), [("grid", None), ("grid", 4), ("none", None), ("none", 4), ("discrete", 4)]
)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_streams_resume_and_skip_bit_for_bit_under_growing_nonces(
    spec: Spec, rounding: str, restart: int | None
) -> None:
    """Each round's nonce is there just before its row is drawn, never earlier: no row reads a later nonce."""
    n, d = 13, 3
    m = mechanisms.build({**fitting(spec, restart or n), "restart_every": restart}, n, MinSeparation(4, 3))
    if rounding == "discrete" and not m.whole:
        pytest.skip("its matrices are not whole")
    privatiser = Privatiser.of(rounding, 2.0, 1.0, d, 1, float(m.row_norms().max()))  # type: ignore[arg-type]
    all_nonces, growing = nonces_of(n), list[bytes]()
    stream = privatiser.stream(m, d, SecureNoise(KEY).with_nonces(growing, m.birth))
    rows, states = [], []
    for nonce in all_nonces:
        states.append(stream.state_dict())
        growing.append(nonce)
        rows.append(stream.next())
    for t, state in enumerate(states):
        kept = all_nonces[:t]
        resumed = privatiser.stream(m, d, SecureNoise(KEY).with_nonces(kept, m.birth))
        skipped = privatiser.stream(m, d, SecureNoise(KEY).with_nonces(kept, m.birth))
        resumed.load_state_dict(state)
        skipped.skip(t)
        short = privatiser.stream(m, d, SecureNoise(KEY).with_nonces(kept, m.birth))
        short.skip(t)
        with pytest.raises(BadInput, check=coded("out-of-range", f"nonces of {t}")):
            short.next()
        for s in range(t, n):
            kept.append(all_nonces[s])
            assert torch.equal(resumed.next(), rows[s])
            assert torch.equal(skipped.next(), rows[s])
        for wrong in ([*all_nonces[:t][::-1], bytes(16)], [*all_nonces[: max(0, t - 1)], bytes(16)]):
            foreign = privatiser.stream(m, d, SecureNoise(KEY).with_nonces(wrong, m.birth))
            with pytest.raises(BadInput, check=coded("differs", "noise state")):
                foreign.load_state_dict(state)
