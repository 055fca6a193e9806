"""What a tests' deployment trains: mounted into its containers, imported by the tests."""

from __future__ import annotations

from fieldfare_client.tasks.digits import DigitsTask


class Digits400(DigitsTask):
    """`digits` on 400 made-up users: 200 for each of two nodes."""

    def __init__(self) -> None:
        super().__init__(users_count=400)
