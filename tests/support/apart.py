"""Machines apart, as deploy/apart has them: a server side, and nodes with projects and directories of their own."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from support.containers import ROOT, Federation, free_port, wait_for


def own_address() -> str:
    """This machine's address, as other machines see it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


class Sides:
    """The server side, and others by name. They share the gate's published port, and what is carried."""

    def __init__(
        self, stack: ExitStack, directory: Path, project: str, task: str, image: str, overlay: str = ""
    ) -> None:
        """overlay: one more compose file of the server side, as text."""
        address, port = own_address(), str(free_port())
        self.directory, self.gate, self.others = directory, f"{address}:{port}", dict[str, Federation]()
        self._stack, self._project, self._task, self._image = stack, project, task, image
        self.server_directory = directory / "server"
        shutil.copytree(ROOT / "deploy", self.server_directory / "deploy")
        shutil.copy(ROOT / "docker-compose.yml", self.server_directory)
        (self.server_directory / "exchange").mkdir()
        known = {"FIELDFARE_IMAGE": image, "FIELDFARE_GATE": address, "FIELDFARE_GATE_PORT": port}
        self.server = self._side("server", ["docker-compose.yml", "deploy/apart/server.yml"], overlay, known)

    def _side(self, name: str, files: Sequence[str], overlay: str, environment: Mapping[str, str]) -> Federation:
        if overlay:
            (self.directory / name / "overlay.yml").write_text(overlay)
            files = [*files, "overlay.yml"]
        made = Federation(f"{self._project}-{name}", files, self._task, self.directory / name, **environment)
        self._stack.callback(made.down)
        return made

    def add(self, name: str, file: str, overlay: str = "", **environment: str) -> Federation:
        """Make the side `name` of a compose file of deploy/apart, and a text laid over it; it starts nothing. Volumes
        of an earlier one, whose test was killed, go."""
        there = self.directory / name
        (there / "exchange").mkdir(parents=True)
        (there / "data").mkdir()
        shutil.copy(ROOT / "deploy/apart" / file, there)
        known = {"FIELDFARE_IMAGE": self._image, "FIELDFARE_NODE_IMAGE": self._image, "FIELDFARE_GATE": self.gate}
        known |= {"FIELDFARE_NODE": name, "FIELDFARE_DATA": str(there / "data"), **environment}
        self.others[name] = self._side(name, [file], overlay, known)
        self.others[name].down()
        return self.others[name]

    def up(self) -> None:
        """Start the server, and carry its certificate to the others."""
        self.server.up()
        authority = self.server_directory / "exchange/ca.crt"
        wait_for(authority.exists, 300)
        for name in self.others:
            shutil.copy(authority, self.directory / name / "exchange")

    def register(self, names: Iterable[str]) -> None:
        """Start others, and let their keys in at the server."""
        for name in names:
            self.others[name].down()
            self.others[name].compose("up", "--detach")
        self.let_in(names)

    def let_in(self, names: Iterable[str]) -> None:
        """Carry the keys of others to the server, and register them."""
        for name in names:
            public = self.directory / name / f"exchange/{name}.pub"
            wait_for(public.exists, 300)
            shutil.copy(public, self.server_directory / "exchange")
        self.server.compose("--profile", "register", "run", "--rm", "register")
