"""Restrict the addresses of policies and webhooks to public ones and to networks that the operator allows (SSRF).

A host that a user submits is judged by the addresses that it resolves to, whatever its spelling: decimal, octal, IPv6
with an embedded IPv4. The service can reach addresses that its users must not: cloud metadata, databases and consoles
beside the service, the machine itself.
"""

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from speciate.domain.errors import InvalidInputError

VARIABLE: Final = "SPECIATE_ALLOWED_NETWORKS"
LOOPBACK: Final = "loopback"
PRIVATE: Final = "private"

RESOLVE_S = 6.0
"""Seconds that name servers have to answer: enough for the resolver to repeat a lost question once."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Range = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], list[str]]
"""Return the addresses of a host, in the order in which to try them; raises ``OSError``."""

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    LOOPBACK: ("127.0.0.0/8", "::1/128"),
    PRIVATE: ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
}
_HOST: Final = re.compile(r"^(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*$")
_NUMBERS: Final = re.compile(r"^[0-9.]+$")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# Reserved by IANA; older versions of Python take them for global.
_RESERVED: Final = tuple(
    map(ipaddress.ip_network, ("192.88.99.0/24", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "2001:2::/48"))
)


class ForbiddenAddressError(InvalidInputError, slug="forbidden-address", title="The address is not allowed"):
    """An address is neither public nor allowed."""


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises ``OSError``, such as ``socket.gaierror``, after ``RESOLVE_S`` at most.

    The lookup has its own thread: the name server of a host that a user submits may be the user's own and never answer,
    and ``getaddrinfo`` then blocks for tens of seconds.
    """
    addresses: list[str] = []
    failures: list[OSError] = []

    def look_up() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses.extend(dict.fromkeys(str(entry[4][0]) for entry in entries))
        except UnicodeError:
            failures.append(socket.gaierror(socket.EAI_NONAME, "invalid host name"))
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=look_up, name="resolve", daemon=True)
    thread.start()
    thread.join(RESOLVE_S)
    if thread.is_alive():
        raise socket.gaierror(socket.EAI_AGAIN, f"no answer of the name server within {RESOLVE_S:g} s")
    if failures:
        raise failures[0]
    return addresses


@dataclass(frozen=True)
class AllowedNetworks:
    """Networks that policies and webhooks may use beside public addresses."""

    allowed: tuple[str, ...] = ()
    """Networks (``10.0.0.0/8``), addresses, host names, and the words ``loopback`` and ``private``. A host name allows
    its addresses except link-local ones, which must be listed as a network."""

    @classmethod
    def of(cls, entries: Iterable[str]) -> Self:
        """Return the networks of a list of entries; the message of a ``ValueError`` names an invalid one."""
        network = cls(tuple(entry.strip().lower().rstrip(".") for entry in entries if entry.strip()))
        for entry in network.allowed:
            if entry not in _WORDS and _range_of(entry) is None and (not _HOST.match(entry) or _NUMBERS.match(entry)):
                raise ValueError(
                    f"{entry!r} is neither a network such as 10.0.0.0/8, an address, a host name, nor {LOOPBACK!r} or"
                    f" {PRIVATE!r}"
                )
        return network

    @cached_property
    def _ranges(self) -> tuple[Range, ...]:
        entries = [part for entry in self.allowed for part in _WORDS.get(entry, (entry,))]
        return tuple(network for entry in entries if (network := _range_of(entry)) is not None)

    def addresses(self, host: str, port: int, resolve: Resolve = resolve) -> list[str]:
        """Return the allowed addresses of a host, at least one, or raise ``ForbiddenAddressError`` or ``OSError``."""
        name = host.strip("[]").lower().rstrip(".")
        reasons = {text: self._reason(ipaddress.ip_address(text), name) for text in resolve(name, port)}
        usable = [text for text, reason in reasons.items() if reason is None]
        if not usable:
            refused = next(iter(reasons.values()), "no")
            raise ForbiddenAddressError(
                f"{host!r} resolves to {refused} address, which policies and webhooks may not use.",
                remedy=f"The operator can allow it: add the host or its network to {VARIABLE}.",
            )
        return usable

    def _reason(self, address: Address, name: str) -> str | None:
        for part in (address, *_inside(address)):
            if any(part.version == network.version and part in network for network in self._ranges):
                continue
            kind = _kind(part)
            if kind is not None and (name not in self.allowed or kind == _LINK_LOCAL):
                return kind
        return None


_LINK_LOCAL: Final = "a link-local"


def _kind(address: Address) -> str | None:
    """Return the kind of a non-public address, with its article; None for a public address."""
    if address.is_link_local:
        return _LINK_LOCAL
    if address.is_loopback:
        return "a loopback"
    if address.is_unspecified:
        return "an unspecified"
    if address.is_multicast:
        return "a multicast"
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    reserved = any(address.version == network.version and address in network for network in _RESERVED)
    return None if address.is_global and not site_local and not reserved else "a private or reserved"


def _inside(address: Address) -> Iterable[Address]:
    """Yield the IPv4 addresses that are embedded in an IPv6 address."""
    if not isinstance(address, ipaddress.IPv6Address):
        return
    # ``::a.b.c.d`` and ``::ffff:0:a.b.c.d`` are obsolete forms that some translators still accept.
    if int(address) >> 32 in {0, 0xFFFF0000} and int(address) > 0xFFFF:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    for embedded in (address.ipv4_mapped, address.sixtofour):
        if embedded is not None:
            yield embedded
    if address in _NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        yield from address.teredo


def _range_of(entry: str) -> Range | None:
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None
