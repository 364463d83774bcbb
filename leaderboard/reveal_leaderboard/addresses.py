"""Classify network addresses: this machine's own, public ones, and the part that identifies a customer."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_EMBEDDING = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")))
"""Networks whose last 32 bits are an IPv4 address: NAT64 (RFC 6052), IPv4-compatible (RFC 4291), translated (RFC 2765).
"""
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Network for local translation (RFC 8215), where each site chooses the position of the IPv4 address."""


def is_loopback(host: str) -> bool:
    """Return True if an address is this machine's own.

    >>> is_loopback("localhost"), is_loopback("[::1]"), is_loopback("::ffff:127.0.0.1"), is_loopback("192.0.2.7")
    (True, True, True, False)
    """
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
    return any(one.is_loopback for one in _all_meant(address))


def is_public_address(text: str) -> bool:
    """Return True if an address and every IPv4 address inside it are public.

    A gateway (NAT64, 6to4, Teredo) may deliver to the IPv4 address inside an IPv6 address.

    >>> [is_public_address(text) for text in ("1.1.1.1", "64:ff9b::1.1.1.1", "64:ff9b::127.0.0.1", "fec0::1")]
    [True, True, False, False]
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    meant = _all_meant(address)
    inner = meant[1:]
    return all(one.is_global for one in inner or meant) and not any(_is_reserved(one) for one in meant)


def network_of(host: str) -> str:
    """Return the part of an address that identifies a customer; "unknown" if a proxy sent something else.

    >>> network_of("192.0.2.7"), network_of("::ffff:192.0.2.7"), network_of("2001:db8::7")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _all_meant(address: Address) -> list[Address]:
    """Return an address and the IPv4 addresses that it contains."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _EMBEDDING) and address.packed[:15] != bytes(15):  # not :: and ::1
        inner.append(ipaddress.IPv4Address(address.packed[-4:]))
    return [address, *(one for one in inner if one is not None)]


def _is_reserved(address: Address) -> bool:
    is_local = isinstance(address, ipaddress.IPv6Address) and (address.is_site_local or address in _LOCAL_NAT64)
    return address.is_multicast or is_local
