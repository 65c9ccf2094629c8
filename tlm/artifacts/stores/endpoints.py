"""Check which servers and buckets may be used: only over TLS, never a link-local address, only listed buckets.

``TLM_HTTP_HOSTS`` lists the hosts that may be used without TLS, separated by commas; this machine always may.
``TLM_BUCKETS`` lists the S3 buckets that may be used, separated by commas; if it is not set, all may.
"""

import os
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from tlm.errors import InputError

HTTP_HOSTS, BUCKETS = "TLM_HTTP_HOSTS", "TLM_BUCKETS"
# Link-local addresses, and other addresses of the metadata services of clouds, which hand out credentials.
FORBIDDEN = tuple(map(ip_network, ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32")))
_NAT64 = ip_network("64:ff9b::/96")


def check_url(url: str, setting: str) -> None:
    """Raise InputError unless the server at `url`, from the environment variable `setting`, may be used."""
    parts = urlsplit(url)
    host, shown = (parts.hostname or "").lower(), parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{setting} is '{shown}'; expected https://host:port")
    found = _addresses(host)
    if any(address in network for address in found for network in FORBIDDEN):
        raise InputError(
            f"{setting} is {shown}, a link-local address, where clouds serve credentials; name another server"
        )
    is_this_machine = bool(found) and all(address.is_loopback for address in found)
    if parts.scheme == "http" and not is_this_machine and host not in _listed(HTTP_HOSTS):
        raise InputError(
            f"{setting} is {shown}: without TLS anybody on the network can read keys and data; give https://, or add "
            f"{host} to {HTTP_HOSTS} if you trust the network"
        )


def check_bucket(bucket: str, address: str) -> None:
    """Raise InputError if there is a list of buckets, and the bucket of `address` is not on it."""
    listed = _listed(BUCKETS)
    if listed and bucket not in listed:
        raise InputError(f"{address}: {BUCKETS} does not name the bucket '{bucket}'; add it, or use another")


def _listed(variable: str) -> set[str]:
    return {name.strip() for name in os.environ.get(variable, "").split(",")} - {""}


def _addresses(host: str) -> list[IPv4Address | IPv6Address]:
    """Return the addresses that this machine resolves `host` to; none if it is unknown."""
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return []
    return [_plain(ip_address(address)) for address in sorted(found)]


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address is mapped from, if it is."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address
    return address
