"""Optimised strategy matrices on disk: a dense one takes minutes to find and seconds to read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from fieldfare_server.files.atomic import replace_file


class StrategyFiles(MutableMapping[str, bytes]):
    """One file for each matrix, named by the hash of its key. The caller checks what it reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _path(self, key: str) -> Path:
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()}.strategy"

    def __getitem__(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except OSError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, value: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(key), value, mode=0o644)

    def __delitem__(self, key: str) -> None:
        self._path(key).unlink()

    def __iter__(self) -> Iterator[str]:
        raise TypeError("keys are kept as hashes only")

    def __len__(self) -> int:
        return sum(1 for _ in self._directory.glob("*.strategy"))
