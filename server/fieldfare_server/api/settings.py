"""The service's settings. The defaults are closed: loopback only, read-only, no other origin."""

from __future__ import annotations

import ipaddress

from pydantic import BaseModel, ConfigDict, Field

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Settings(BaseModel):
    """Every limit is finite, so that one client cannot take the service from the others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosts: tuple[str, ...] = Field(
        default=LOOPBACK_HOSTS, description="host names that the service answers to (without the port)"
    )
    anonymous_read: bool = Field(
        default=True, description="a caller on this machine may read without a token; any other needs one"
    )
    max_body_bytes: int = Field(default=16_384, ge=0, description="largest request body")
    max_target_bytes: int = Field(default=4_096, ge=64, description="longest path and query together")
    requests_per_minute: int = Field(default=1_200, ge=1, description="per client address")
    burst: int = Field(default=240, ge=1, description="requests a client may make at once")
    failed_logins_per_minute: int = Field(default=12, ge=1, description="wrong tokens per client address")
    event_poll_seconds: float = Field(default=0.5, gt=0, le=10, description="time between two reads of new events")
    event_clients: int = Field(default=1_024, ge=1, description="most open event streams")
    event_clients_each: int = Field(default=64, ge=1, description="streams of one caller that give way to no other")
    event_queue: int = Field(default=256, ge=1, description="events a slow client may fall behind before it is cut")
    event_replay: int = Field(default=1_000, ge=0, description="most events replayed to a client that reconnects")
    event_ping_seconds: float = Field(default=15.0, gt=0, description="silence after which a comment line is sent")
    token_audit_seconds: float = Field(default=3_600.0, ge=0, description="reads by one token are audited this often")
    verify_seconds: float = Field(default=5.0, ge=0, description="new ledger rows are verified at most this often")
    metrics_seconds: float = Field(default=2.0, ge=0, description="ledger figures on /metrics are at most this old")
    hsts: bool = Field(default=False, description="send Strict-Transport-Security; set it when TLS is on")


def host_name(host: str) -> str:
    """Return the name in a Host header: without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def is_loopback(address: str | None) -> bool:
    """Return whether `address` is an IP address of this machine's loopback interface; a name is never one."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def is_this_machine(host: str) -> bool:
    """Return whether what is sent to `host`, a name or an address, stays on this machine."""
    return is_loopback(host) or host == "localhost"
