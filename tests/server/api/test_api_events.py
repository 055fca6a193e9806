from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import ledger_data
import pytest
from live_ledger import LiveLedger

from fieldfare.errors import BadInput
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api import events as events_module
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.events import Broker, TooManyClients
from fieldfare_server.api.http_client import Client, ServiceError
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.deployment.certificates import make_server
from support.postgres import Cluster
from support.refusals import coded


@pytest.fixture
def client(live: LiveLedger, settings: Settings) -> Iterator[Client]:
    with serve_in_thread(config(create_app(live.url, settings), port=0)) as url, Client(url) as client:
        yield client


def test_a_commit_reaches_a_client(client: Client, live: LiveLedger) -> None:
    stream = client.events()
    hello = next(stream)
    assert (hello.kind, hello.id) == ("hello", live.rows)
    live.commit()
    _, event = islice(stream, 2)
    assert (event.kind, event.id) == ("ledger", live.rows)
    assert event.data["event"] == "round.commit"
    assert (event.data["run"], event.data["round"]) == ("run-3", 6)


def test_a_client_that_reconnects_misses_nothing_and_gets_nothing_twice(client: Client, live: LiveLedger) -> None:
    head = live.rows
    first = client.events(head - 5)
    got = [event.id for event in islice(first, 4)]
    assert got == [head - 5, head - 4, head - 3, head - 2]
    first.close()  # type: ignore[attr-defined]
    for _ in range(3):
        live.commit()
    seen = [event.id for event in islice(client.events(got[-1]), 1 + 2 + 6)]
    assert seen == list(range(got[-1], head + 7))


def test_commits_in_a_ledger_reach_a_client_and_a_reconnecting_one_misses_none(ledger_url: str) -> None:
    settings = Settings(event_poll_seconds=0.02)
    with ledger_data.new_ledger(ledger_url) as ledger:
        run = ledger_data.start(ledger, "run-1")
        with serve_in_thread(config(create_app(ledger_url, settings), port=0)) as url, Client(url) as client:
            stream = client.events()
            hello = next(stream)
            assert (hello.kind, hello.id) == ("hello", ledger.head().count)
            ledger_data.commit(run)
            opened, committed = islice(stream, 2)
            assert (opened.data["event"], committed.data["event"]) == ("round.open", "round.commit")
            assert (committed.data["run"], committed.data["round"]) == ("run-1", 0)
            stream.close()  # type: ignore[attr-defined]
            for _ in range(3):
                ledger_data.commit(run)
            missed = [event.id for event in islice(client.events(committed.id), 1 + 6)]
            assert missed == list(range(committed.id, committed.id + 7))


@pytest.mark.postgres
def test_streams_survive_a_database_that_is_started_anew(postgres: Cluster) -> None:
    address = postgres.new_database()
    with ledger_data.new_ledger(address) as ledger:
        run = ledger_data.start(ledger, "run-1")
        app = create_app(address, Settings(event_poll_seconds=0.02))
        with serve_in_thread(config(app, port=0)) as url, Client(url) as client:
            stream = client.events()
            next(stream)
            postgres.stop()
            try:
                with pytest.raises(ServiceError) as refused:
                    next(client.populations())
                assert refused.value.status == 503
            finally:
                postgres.start()
            ledger_data.commit(run)
            assert [event.data["event"] for event in islice(stream, 2)] == ["round.open", "round.commit"]


@pytest.mark.parametrize("last", [10**6, 0])
def test_too_far_behind_or_from_another_ledger_means_load_anew(live: LiveLedger, last: int) -> None:
    settings = Settings(event_replay=10, event_poll_seconds=0.02)
    with serve_in_thread(config(create_app(live.url, settings), port=0)) as url, Client(url) as client:
        first = next(client.events(last))
        assert (first.kind, first.id) == ("reset", live.rows)


def test_no_more_streams_than_allowed(live: LiveLedger) -> None:
    settings = Settings(event_clients=1, event_poll_seconds=0.02)
    with serve_in_thread(config(create_app(live.url, settings), port=0)) as url, Client(url) as client:
        held = client.events()
        next(held)
        with pytest.raises(ServiceError) as refused:
            next(client.events())
        assert refused.value.status == 503


def test_a_bad_last_event_id_is_refused(client: Client) -> None:
    for wrong in (-1, 2**63):
        with pytest.raises(ServiceError) as refused:
            next(client.events(wrong))
        assert refused.value.status == 422


def test_streams_survive_a_ledger_that_is_away_for_a_moment(client: Client, live: LiveLedger) -> None:
    stream = client.events()
    next(stream)
    with live.away(), pytest.raises(ServiceError):
        next(client.populations())
    live.commit()
    assert [event.id for event in islice(stream, 2)] == [live.rows - 1, live.rows]


def test_a_slow_client_is_cut_and_holds_up_nobody(live: LiveLedger) -> None:
    live.token("read")
    token = live.ledger.tokens()[0].id
    settings = Settings(event_queue=3, event_poll_seconds=0.01, event_ping_seconds=5)

    async def run() -> tuple[list[bytes], int]:
        broker = Broker(Answers(live.ledger), settings)
        await broker.start()
        slow, quick = await broker.stream(None), await broker.stream(None)
        for stream in (slow, quick):
            await anext(stream)  # retry
            await anext(stream)  # hello
        seen = 0
        for _ in range(20):
            live.ledger.record_token_use(token, "read", actor="test")
            await anext(quick)
            seen += 1
        left = [part async for part in slow]
        clients = broker.clients
        await quick.aclose()  # type: ignore[attr-defined]
        await broker.stop()
        assert broker.clients == 0
        assert seen == 20
        return left, clients

    left, clients = asyncio.run(run())
    assert len(left) == 3, "what fitted into its queue, then the end"
    assert clients == 1


def test_a_stream_never_begun_leaves_nothing_behind(live: LiveLedger) -> None:
    async def run() -> None:
        broker = Broker(Answers(live.ledger), Settings(event_clients=1))
        for _ in range(3):
            stream = await broker.stream(None)
            await stream.aclose()  # type: ignore[attr-defined]
        assert broker.clients == 0
        held = await broker.stream(None)
        await anext(held)
        with pytest.raises(TooManyClients):
            await broker.stream(None)

    asyncio.run(run())


def test_without_clients_no_row_is_read_and_one_that_comes_meanwhile_misses_none(live: LiveLedger) -> None:
    async def run() -> None:
        answers, bodies = Answers(live.ledger), []
        head, events = answers.head, answers.events
        answers.events = lambda *of: bodies.append(of) or events(*of)  # type: ignore[func-returns-value, method-assign]
        broker = Broker(answers, Settings())
        await broker._read_new_rows()
        live.commit()
        await broker._read_new_rows()
        assert (broker._position, bodies) == (head(), [])
        live.commit()
        client = events_module.Subscriber(10)

        def comes_meanwhile() -> int:
            broker._clients[client] = None
            return head()

        answers.head = comes_meanwhile  # type: ignore[method-assign]
        await broker._read_new_rows()
        assert [client.queue.get_nowait()[0] for _ in range(client.queue.qsize())] == [head() - 1, head()]

    asyncio.run(run())


def test_silence_is_filled_with_pings(live: LiveLedger) -> None:
    async def run() -> list[bytes]:
        broker = Broker(Answers(live.ledger), Settings(event_ping_seconds=0.01, event_poll_seconds=0.01))
        await broker.start()
        stream = await broker.stream(None)
        parts = [await anext(stream) for _ in range(4)]
        await stream.aclose()  # type: ignore[attr-defined]
        await broker.stop()
        return parts

    assert asyncio.run(run())[2:] == [b": ping\n\n"] * 2


def test_the_client_reads_everything(client: Client, live: LiveLedger) -> None:
    assert [p.name for p in client.populations()] == ["aircraft"]
    assert client.population("aircraft").rounds_left == 10
    assert [r.id for r in client.runs()] == ["run-3", "run-2", "run-1"]
    assert client.run("run-3").guarantee.not_covered
    assert len(list(client.rounds("run-3"))) == 6
    assert client.series("run-3", 10).points[-1].round == 5
    assert client.participation("run-3").users == (0, 96, 96)
    assert [row.id for row in client.audit()] == list(range(live.rows, 0, -1))
    assert client.verification().ok
    assert client.ready().status == "ok"
    assert client.me().anonymous


def test_the_client_says_what_the_service_refused(client: Client, live: LiveLedger) -> None:
    with pytest.raises(ServiceError, check=coded("not-found", "trains")):
        client.population("trains")
    with pytest.raises(ServiceError) as refused:
        client.stop("run-3")
    assert refused.value.status == 401
    with live.away():
        assert client.ready().status == "unavailable"


def test_a_token_is_not_sent_in_the_clear() -> None:
    with pytest.raises(BadInput, check=coded("not-allowed", "a token for")):
        Client("http://budget.example", token="ff_x")
    Client("https://budget.example", token="ff_x").close()
    Client("http://127.0.0.1:1", token="ff_x").close()
    with pytest.raises(BadInput):
        Client("budget.example")


def test_the_client_stops_a_run(live: LiveLedger, settings: Settings) -> None:
    admin = live.token("admin")
    with serve_in_thread(config(create_app(live.url, settings), port=0)) as url, Client(url, token=admin) as client:
        assert client.pause("run-3").request == "pause"
        assert client.resume("run-3").request == "resume"
        assert client.stop("run-3").state == "stopping"
        assert live.run.request() == "stop"


def test_a_service_that_is_not_there() -> None:
    here = pytest.raises(ServiceError, check=coded("service-error", "http://127.0.0.1:9", "fieldfare serve"))
    with Client("http://127.0.0.1:9") as client, here:
        client.me()


def test_a_certificate_that_nobody_here_trusts_is_told_with_the_option_that_names_its_authority(
    live: LiveLedger, settings: Settings, tmp_path: Path
) -> None:
    make_server(tmp_path / "s", tmp_path / "x", ["127.0.0.1"])
    link, ca = tmp_path / "s" / "superlink", str(tmp_path / "x" / "ca.crt")
    tls = config(create_app(live.url, settings), port=0, certificate=link / "server.crt", key=link / "server.key")
    token = live.token("read")
    with serve_in_thread(tls) as url:
        with Client(url, token=token, verify=ca) as client:
            assert client.me().name
        stranger = pytest.raises(ServiceError, check=coded("service-error", url, "--ca-file"))
        with Client(url, token=token) as client, stranger:
            client.me()


def test_a_port_that_is_taken_is_said(live: LiveLedger, settings: Settings) -> None:
    with serve_in_thread(config(create_app(live.url, settings), port=0)) as url:
        port = int(url.rpartition(":")[2])
        with (
            pytest.raises(BadInput, check=coded("already-there", "port")),
            serve_in_thread(config(create_app(live.url, settings), port=port)),
        ):
            pass


def test_the_network_needs_tls(live: LiveLedger) -> None:
    app = create_app(live.url)
    with pytest.raises(BadInput, check=coded("not-allowed", "serving on")):
        config(app, "0.0.0.0")
    with pytest.raises(BadInput, check=coded("not-given", "TLS")):
        config(app, "0.0.0.0", certificate=Path("server.pem"))
    assert config(app, "0.0.0.0", plaintext_network=True).host == "0.0.0.0"


def test_an_open_stream_does_not_hold_a_shutdown_up(live: LiveLedger, settings: Settings) -> None:
    with contextlib.ExitStack() as stack:
        with serve_in_thread(config(create_app(live.url, settings), port=0)) as url:
            stream = stack.enter_context(Client(url)).events()
            next(stream)
        # The service has ended the stream properly, not cut it: a cut raises `ServiceError`.
        assert list(stream) == []
