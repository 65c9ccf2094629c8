"""Which servers and buckets are talked to: over TLS, never a link-local address, and where there is a list, only those.

``TLM_HTTP_HOSTS`` names the hosts that may be talked to without TLS, separated by commas; this machine always may.
``TLM_BUCKETS`` names the S3 buckets that addresses may lead to; without it they are those that the keys are good for.
"""

import os
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from tlm.errors import InputError

HTTP_HOSTS, BUCKETS = "TLM_HTTP_HOSTS", "TLM_BUCKETS"
# Link-local addresses, and those of the clouds' metadata services that are none: who asks there is given keys.
FORBIDDEN = tuple(map(ip_network, ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32")))
_NAT64 = ip_network("64:ff9b::/96")


def check_url(url: str, setting: str) -> None:
    """Raise InputError unless `url`, which the environment variable `setting` gave, is of a server to be talked to."""
    parts = urlsplit(url)
    host, shown = (parts.hostname or "").lower(), parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{setting} is '{shown}'; expected https://host:port")
    found = _addresses(host)
    if any(address in network for address in found for network in FORBIDDEN):
        raise InputError(f"{setting} is {shown}, a link-local address, where clouds keep keys; name another server")
    at_home = bool(found) and all(address.is_loopback for address in found)
    if parts.scheme == "http" and not at_home and host not in _listed(HTTP_HOSTS):
        raise InputError(
            f"{setting} is {shown}: without TLS anybody on the way reads keys and data; give https://, or name {host} "
            f"in {HTTP_HOSTS} if you trust the way"
        )


def check_bucket(bucket: str, address: str) -> None:
    """Raise InputError if there is a list of buckets and this one, of `address`, is not on it."""
    listed = _listed(BUCKETS)
    if listed and bucket not in listed:
        raise InputError(f"{address}: {BUCKETS} does not name the bucket '{bucket}'; add it, or take another")


def _listed(variable: str) -> set[str]:
    return {name.strip() for name in os.environ.get(variable, "").split(",")} - {""}


def _addresses(host: str) -> list[IPv4Address | IPv6Address]:
    """What `host` means to this machine, in whatever way it is written; nothing where nobody is called so."""
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return []
    return [_plain(ip_address(address)) for address in sorted(found)]


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address stands for, where it does."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address
    return address
