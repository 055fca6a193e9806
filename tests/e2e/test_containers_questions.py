"""On two SuperNodes in containers, charged and verified: a metric that rides in a run, a question of each kind, and
trials on a share."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

from fieldfare.plan import Plan
from fieldfare_server.files.plan_file import plan_text
from fieldfare_server.planning.tuning import Tuning
from support.container_runs import TASK, check_ledger, plan
from support.containers import ROOT, Federation, require_engine

sys.path.append(str(ROOT / "tests/e2e/image"))
from fieldfare_e2e import Halves

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(3600)]

OURS, USERS = "fieldfare_e2e:Halves", 400
METRICS = "[metrics]\nshow = { correct = [0, 1] }\nweight = 0.3\nwindow = 4\n"
QUESTION = f"""
[question]
{{question}}
[run]
task = "{OURS}"
cohort = {USERS}
min_reports = {USERS // 2}
round_timeout = 180
[privacy]
population = "people"
noise_multiplier = 1.0
delta = 1e-5
"""
QUESTIONS = {
    "count": 'kind = "count"\nmeasure = "y"\nlow = 4.5\nhigh = 9',
    "histogram": 'kind = "histogram"\nmeasure = "y"\nlow = -0.5\nhigh = 9.5\nbins = 2',
    "mean": 'kind = "mean"\nmeasure = "rows"\nlow = 0\nhigh = 20',
    "quantile": 'kind = "quantile"\nmeasure = "rows"\nlow = 0\nhigh = 20\nbins = 20\nat = [0.5]',
    "items": 'kind = "items"\nmeasure = "y"\nmost = 3\nleak = 1e-7',
    "auc": 'kind = "auc"\nmodel = "{good}"',
    "choose": 'kind = "choose"\nmeasure = "loss"\nhigh = 4\nmodels = ["{bad}", "{good}"]',
}
ASK = 'cat >/tmp/question.toml; exec fieldfare ask /tmp/question.toml --json "$@"'
NODES = ("--superlink", "superlink:8000", "--root-certificates", "/secrets/ca.crt")


@pytest.fixture(scope="module")
def halves() -> Iterator[Federation]:
    """A federation whose task has two classes, and a population with a leak."""
    require_engine()
    made = Federation("fieldfare-e2e-questions", ["docker-compose.yml", "tests/e2e/compose.e2e.yml"], OURS)
    try:
        made.up()
        made.administer("fieldfare population create people --epsilon 80 --delta 1e-5 --leak 1e-6 --simulated")
        yield made
    finally:
        made.down()


def of_users() -> dict[str, float]:
    """What is so of the users, counted without the product's questions: each user weighs the same."""
    table = Halves().users()
    labels = [np.asarray(table.columns["y"])[a:b] for a, b in zip(table.offsets, table.offsets[1:], strict=False)]
    rows, some = np.array([len(each) for each in labels]), [each for each in labels if len(each)]
    return {
        "count": float(sum(4.5 <= each.mean() <= 9 for each in some)),
        "low half": float(sum((each < 5).mean() for each in some)),
        "high half": float(sum((each >= 5).mean() for each in some)),
        "mean": float(np.minimum(rows, 20).mean()),
        "median": float(np.median(rows)),
        **{f"item {digit}": float(sum(digit in np.unique(each)[:3] for each in some)) for digit in range(10)},
    }


def area(federation: Federation, run: str) -> float:
    """Under the ROC curve of a released model over all users, each of whose rows share one user's weight."""
    task = Halves()
    model, table = task.build_model(), task.users()
    text = federation.exec("keeper", "base64", f"/state/runs/{run}/model.safetensors")
    model.load_state_dict(load(base64.b64decode(text)))
    x, y = task.prepare({name: torch.from_numpy(np.asarray(each)) for name, each in table.columns.items()})
    with torch.no_grad():
        score = model(x).softmax(dim=1)[:, 1].double()
    weight = torch.from_numpy(np.repeat(1 / np.maximum(table.sizes, 1), table.sizes))
    high, low = y == 1, y == 0
    pairs = weight[high][:, None] * weight[low][None]
    return float(((score[high][:, None] > score[low][None]) * pairs).sum() / pairs.sum())


def test_every_look_over_nodes_is_answered_charged_and_verified(halves: Federation) -> None:
    runs = {}
    for name, text in {
        "good": plan("people", 4, timeout=180.0) + METRICS,
        "bad": plan("people", 1, timeout=180.0)
        .replace("= 0.3", "= 0.01")
        .replace("participations = 2", "participations = 1"),
    }.items():
        runs[name] = halves.submit(text.replace(TASK, OURS).replace("noise_seed = 7\n", ""))
        halves.wait_done(runs[name])
    shown = [r["statistics"] for r in halves.rounds(runs["good"]) if r["state"] == "committed"]
    assert len(shown) == 4
    for each in shown:
        assert each["metric.correct.low"] < each["metric.correct"] < each["metric.correct.high"]
    print("correct:", [[round(each[f"metric.correct{end}"], 3) for end in (".low", "", ".high")] for each in shown])

    answers, spent = dict[str, Any](), [halves.get("/v1/populations/people")["spent"]["epsilon"]]
    for kind, question in QUESTIONS.items():
        text = QUESTION.format(question=question.format(**runs))
        answers[kind] = json.loads(halves.administer(ASK, *NODES, stdin=text))
        spent.append(halves.get("/v1/populations/people")["spent"]["epsilon"])
        print(kind, answers[kind]["answer"], *spent[-2:])
        assert answers[kind]["users"] == USERS
    assert spent == sorted(spent)
    assert len(set(spent)) == len(QUESTIONS) + 1
    looks = halves.get("/v1/runs?asks=true&limit=100")["items"]
    assert {look["id"] for look in looks} == {answer["run"] for answer in answers.values()}
    check_ledger(halves)

    truth, value = of_users(), {k: [e["value"] for e in a["answer"]] for k, a in answers.items()}
    # Six standard deviations, of noise of half a user a count, one a bin, sqrt(3) an item.
    assert value["count"][0] == pytest.approx(truth["count"], abs=3)
    assert value["histogram"] == pytest.approx([truth["low half"], truth["high half"]], abs=6)
    assert value["mean"][0] == pytest.approx(truth["mean"], abs=0.2)
    assert value["quantile"][0] == pytest.approx(truth["median"], abs=1.0)
    for item in answers["items"]["answer"][:-1]:
        assert item["value"] == pytest.approx(truth[f"item {item['name']}"], abs=6 * np.sqrt(3))
    assert len(answers["items"]["answer"]) > 8
    assert value["auc"][0] == pytest.approx(area(halves, runs["good"]), abs=0.1)
    assert answers["choose"]["answer"][0]["name"] == runs["good"]


def test_trials_on_a_share_and_the_final_run_fit_in_the_budget_of_one_run(halves: Federation) -> None:
    """The plans and the question of `fieldfare tune`, submitted by hand as its page says."""
    halves.administer("fieldfare population create tuned --epsilon 8 --delta 1e-5 --simulated")
    text = plan("tuned", 4, min_available=24, timeout=180.0).replace(TASK, OURS).replace("noise_seed = 7\n", "")
    over = {"server_optimizer.learning_rate": [0.01, 1.0]}
    tuning = Tuning.of(Plan.from_toml(text), over, share=0.25, score="correct")

    def train(a_plan: Plan) -> str:
        run = halves.submit(plan_text(a_plan))
        halves.wait_done(run)
        return run

    runs = [train(tuning.trial(index)) for index in range(2)]
    size = tuning.size(Halves().users().pseudonyms)
    asked = tuning.question(runs, size)
    assert asked is not None
    question = f'kind = "choose"\nmeasure = "correct"\nmodels = {json.dumps(runs)}'
    table = QUESTION.format(question=question).replace('"people"', '"tuned"')
    for old, new in ((f"cohort = {USERS}", f"cohort = {size}"), (f"= {USERS // 2}", f"= {size}")):
        table = table.replace(old, new)
    table = table.replace("noise_multiplier = 1.0", f"noise_multiplier = {asked.privacy.noise_multiplier}")
    answer = json.loads(halves.administer(ASK, *NODES, stdin=f'{table}[tuning]\nshare = 0.25\nusers = "share"\n'))
    print("trials:", answer["answer"], halves.get("/v1/populations/tuned")["spent"])
    assert answer["users"] == size
    final = train(tuning.finals[runs.index(answer["answer"][0]["name"])])
    spent = halves.get("/v1/populations/tuned")["spent"]["epsilon"]
    whole, others = (
        sum(halves.get(f"/v1/{name}/participation")["users"][1:]) for name in ("populations/tuned", f"runs/{final}")
    )
    print("took part:", size, others, whole, "spent:", spent)
    assert whole == size + others  # all of the share has answered, and nobody of it trained for the final run
    assert spent <= 8.0
    check_ledger(halves)
