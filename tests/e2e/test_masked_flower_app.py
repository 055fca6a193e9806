"""A stranger's app on SuperNodes, masked and charged at its nodes by one line: `mods=[ff.budget, ff.masked]`; and a
blinder that adds noise of its own."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from test_masked_federation import NODES, say
from test_private_flower_app import QUICKSTART, flwr_run

from fieldfare.masking.receipts import Receipt
from fieldfare.plan import Plan
from fieldfare_server.deployment.simulation import superlink
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.flower import supernode
from support.flower_app import masked_plan

WORDS = 4 * 16 + 16 + 16 * 2 + 2
CHANGES = {
    "client_app.py": {
        "from flwr.clientapp import ClientApp": "import fieldfare as ff\nfrom flwr.clientapp import ClientApp",
        "ClientApp()": "ClientApp(mods=[ff.budget, ff.masked])",
    },
    "server_app.py": {
        "from flwr.serverapp.strategy import FedAvg": "import fieldfare as ff",
        "FedAvg(fraction_evaluate=0.0)": "ff.PrivateStrategy(plan='{plan}')",
    },
}


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(400)
def test_one_line_masks_and_charges_an_app_on_supernodes(tmp_path: Path) -> None:
    at, app = str(tmp_path / "blinder"), tmp_path / "app"
    home = StateDirectory(tmp_path / "home", f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("clinics", 20.0, 1e-5, actor="test")
    key = say("blinder", "init", "--at", at)
    plan = tmp_path / "plan.toml"
    plan.write_text(text := masked_plan(key, cohort=NODES, least=NODES, round_timeout=60, noise=0.5))
    say("blinder", "budget", "--epsilon", "40", "--delta", "1e-5", "--at", at)
    assert Plan.from_toml(text).digest() in say("blinder", "approve", str(plan), "--words", str(WORDS), "--at", at)
    (app / "quickstart").mkdir(parents=True)
    for path in QUICKSTART.glob("*.py"):
        text = path.read_text()
        for old, new in CHANGES.get(path.name, {}).items():
            assert text.count(old) == 1
            text = text.replace(old, new.format(plan=plan))
        (app / "quickstart" / path.name).write_text(text)
    toml = (QUICKSTART / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(toml.replace('out = ""\n', f'out = "{tmp_path / "model.pt"}"\n'))
    env = {"FIELDFARE_HOME": str(home.root), "FIELDFARE_LEDGER": home.ledger, "OMP_NUM_THREADS": "1"}
    run_blinder = [str(Path(sys.executable).parent / "fieldfare"), "blinder", "run", "--at", at]
    with ExitStack() as stack:
        address = stack.enter_context(
            superlink(tmp_path / "link", "--disable-runtime-dependency-installation", env=env)
        )
        for index in range(NODES):
            own, signs = tmp_path / f"own-{index}", tmp_path / f"{index}.sign"
            say("blinder", "admit", f"clinic {index}", say("node-key", str(signs)), "--at", at)
            own.mkdir()
            (own / "budget.toml").write_text(
                f'[populations.clinics]\nhead = "{home.head_file.read_text().strip()}"\nepsilon = 8.0\ndelta = 1e-5\n'
            )
            made = [sys.executable, "-m", "fieldfare_client.budget", "init", "--file", str(own / "budget.toml")]
            subprocess.run(made, check=True, timeout=100)
            more = f'blinder="{key}" node-key="{signs}"'
            kept = {"FIELDFARE_BUDGET": str(own / "budget.toml")}
            stack.enter_context(supernode(tmp_path, address, index, "", NODES, more, **kept))
        stack.enter_context(supernode(tmp_path, address, 9, start=run_blinder))
        output = flwr_run(tmp_path, address, app, env)
    with Ledger.open(home.ledger) as ledger:
        (run,) = ledger.runs().items
        assert (run.state, run.next_round) == ("done", 2), output[-3000:]
        assert ledger.population("clinics").users == NODES
        assert verify(ledger, home.root, recompute=recharge, held=[ledger.head()]).ok
        noised = [
            Receipt.parse(row.body["receipt"]).noise for row in ledger.journal_rows().items if "receipt" in row.body
        ]
        assert len(noised) == 2
        assert min(noised) > 0
    status = json.loads(say("blinder", "status", "--json", "--at", at))
    assert [row[1:4] for row in status["answers"]] == [[run.id, round, NODES] for round in range(2)]
    assert [row[0] for row in status["charges"]] == [run.id]
    for index in range(NODES):
        with sqlite3.connect(tmp_path / f"own-{index}" / "charges.sqlite3") as charges:
            assert charges.execute("SELECT count(*) FROM users").fetchone() == (1,)
            assert charges.execute("SELECT count(*) FROM asked").fetchone() == (2,)
    assert (tmp_path / "model.pt").exists()
