"""Addresses of this machine and of the internet. Expected values: IANA's registries of special-purpose addresses."""

from __future__ import annotations

import pytest
from reveal_leaderboard.addresses import is_loopback, is_public_address

PUBLIC = (
    "93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822", "2002:5db8:d822::1",
)  # fmt: skip
INSIDE = (
    "127.0.0.1", "0.0.0.0", "224.0.0.1", "100.64.0.1", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1",
    "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::10.0.0.1", "64:ff9b:1:7f00:0:100::",
    "2002:7f00:1::", "2002:a00:1::1", "2001:0:7f00:1::1", "fec0::1", "fd00:ec2::254", "fe80::1%eth0", "ff02::1", "name",
)  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet(address: str) -> None:
    assert is_public_address(address)


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_that_reach_a_private_network(address: str) -> None:
    assert not is_public_address(address)


@pytest.mark.parametrize("host", ["LOCALHOST", "localhost.", "127.9.9.9", "[::1]", "::ffff:127.0.0.1", "::127.0.0.1"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)
    assert not is_loopback(f"{host}.example.org")
