"""What kind of address an address is: by its bytes alone. An IPv4 address in IPv6 clothes is the IPv4 address."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Union

from belljar._generated import api

IpAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Networks = tuple[Union[ipaddress.IPv4Network, ipaddress.IPv6Network], ...]


def _networks(*texts: str) -> Networks:
    return tuple(ipaddress.ip_network(text) for text in texts)


LOOPBACK = _networks("127.0.0.0/8", "::1/128")
PRIVATE = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")
LINK_LOCAL = _networks("169.254.0.0/16", "fe80::/10")
MULTICAST = _networks("224.0.0.0/4", "ff00::/8")
BROADCAST = _networks("255.255.255.255/32")
DOCUMENTATION = _networks("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")
KNOWN = LOOPBACK + PRIVATE + LINK_LOCAL + MULTICAST + BROADCAST + DOCUMENTATION
RESERVED = _networks(
    "0.0.0.0/8",
    "192.0.0.0/24",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "240.0.0.0/4",
    # Translation and tunnels lead to an IPv4 address that these tests would not see.
    "::/128",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2002::/16",
    "5f00::/16",
)
# All of IPv6 that is given out to the public.
GLOBAL = _networks("2000::/3")


@dataclass(frozen=True)
class Endpoint:
    """An address and a port, and of which kind the address is.

    `ip` is empty where the sandbox named only a host, to a proxy; it is of no kind then.
    """

    ip: str
    port: int

    @property
    def address(self) -> IpAddress | None:
        try:
            address = ipaddress.ip_address(self.ip)
        except ValueError:
            return None
        return getattr(address, "ipv4_mapped", None) or address

    def _among(self, networks: Networks) -> bool:
        address = self.address
        return address is not None and any(address in network for network in networks)

    @property
    def is_loopback(self) -> bool:
        return self._among(LOOPBACK)

    @property
    def is_private(self) -> bool:
        """Networks that are nobody's in particular: `10.0.0.0/8` and its kin, shared addresses, `fc00::/7`."""
        return self._among(PRIVATE)

    @property
    def is_link_local(self) -> bool:
        """`169.254.0.0/16`, where clouds keep their metadata, and `fe80::/10`."""
        return self._among(LINK_LOCAL)

    @property
    def is_multicast(self) -> bool:
        return self._among(MULTICAST)

    @property
    def is_broadcast(self) -> bool:
        return self._among(BROADCAST)

    @property
    def is_documentation(self) -> bool:
        """Addresses of examples."""
        return self._among(DOCUMENTATION)

    @property
    def is_reserved(self) -> bool:
        """Set aside: unspecified, benchmarks, protocol assignments, translation, and what is not given out."""
        if self.address is None or self._among(KNOWN):
            return False
        return self._among(RESERVED) or (self.address.version == 6 and not self._among(GLOBAL))

    @property
    def is_public_internet(self) -> bool:
        """None of the above."""
        return self.address is not None and not self._among(KNOWN) and not self.is_reserved

    @classmethod
    def of(cls, message: api.Endpoint) -> Endpoint:
        return cls(message.ip, message.port)
