"""Allowed networks: the resolved address decides, whatever the spelling of the host."""

from __future__ import annotations

import pytest

from speciate.egress.network import AllowedNetworks, ForbiddenAddressError, resolve

METADATA = [
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "::ffff:169.254.169.254",
    "[::ffff:a9fe:a9fe]", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe", "fe80::1", "fe80::1%lo",
]  # fmt: skip
LOCAL = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "localhost", "LOCALHOST.", "::1",
    "[::1]", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "127.255.255.254",
]  # fmt: skip
PRIVATE = [
    "10.0.0.1", "167772161", "172.16.5.4", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fc00::1", "fd12:3456::1",
    "fec0::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "198.18.0.1", "192.0.0.1", "240.0.0.1",
    "64:ff9b:1::a00:1", "64:ff9b:1:ffff::1", "192.88.99.1", "3fff::1", "3fff:fff::1", "5f00::1", "2001:2::1",
]  # fmt: skip
OTHERS = ["0.0.0.0", "0", "::", "224.0.0.1", "239.1.2.3", "ff02::1", "ff0e::1", "255.255.255.255"]
PUBLIC = ["8.8.8.8", "134744072", "2001:4860:4860::8888", "64:ff9b::808:808", "172.32.0.1", "11.0.0.1"]


@pytest.mark.parametrize("host", [*METADATA, *LOCAL, *PRIVATE, *OTHERS])
def test_non_public_addresses_are_refused_with_the_remedy(host: str) -> None:
    with pytest.raises(ForbiddenAddressError, match="SPECIATE_ALLOWED_NETWORKS"):
        AllowedNetworks().addresses(host, 80)


@pytest.mark.parametrize("host", PUBLIC)
def test_public_addresses_are_allowed(host: str) -> None:
    assert AllowedNetworks().addresses(host, 80)


@pytest.mark.parametrize(
    ("allowed", "host", "address"),
    [
        (("loopback",), "localhost", "127.0.0.1"),
        (("loopback",), "::1", "::1"),
        (("private",), "192.168.1.1", "192.168.1.1"),
        (("private",), "fd00::7", "fd00::7"),
        (("10.1.0.0/16",), "10.1.2.3", "10.1.2.3"),
        (("10.1.2.3",), "167838211", "10.1.2.3"),
        (("vllm",), "VLLM.", "172.18.0.5"),
        (("169.254.169.254/32",), "169.254.169.254", "169.254.169.254"),
    ],
)
def test_networks_that_the_operator_names_are_allowed(allowed: tuple[str, ...], host: str, address: str) -> None:
    def look(name: str, port: int) -> list[str]:
        return ["172.18.0.5"] if name == "vllm" else resolve(name, port)

    assert address in AllowedNetworks.of(allowed).addresses(host, 80, look)


@pytest.mark.parametrize(
    ("allowed", "host"),
    [
        (("loopback",), "10.0.0.1"),
        (("loopback",), "169.254.169.254"),
        (("private",), "127.0.0.1"),
        (("private",), "169.254.169.254"),
        (("private",), "::ffff:169.254.169.254"),
        (("10.1.0.0/16",), "10.2.0.1"),
        (("10.0.0.0/8",), "::ffff:192.168.0.1"),
        (("vllm",), "evil"),
        (("vllm",), "vllm.evil"),
    ],
)
def test_other_networks_stay_forbidden(allowed: tuple[str, ...], host: str) -> None:
    with pytest.raises(ForbiddenAddressError):
        AllowedNetworks.of(allowed).addresses(
            host, 80, lambda name, port: ["10.9.9.9"] if "vil" in name else resolve(name, port)
        )


def test_an_allowed_name_never_allows_a_link_local_address() -> None:
    with pytest.raises(ForbiddenAddressError, match="link-local"):
        AllowedNetworks.of(["vllm"]).addresses("vllm", 80, lambda *_: ["169.254.169.254"])


def test_of_several_addresses_only_the_allowed_ones_are_used() -> None:
    mixed = ["10.0.0.1", "8.8.8.8", "127.0.0.1"]
    assert AllowedNetworks().addresses("mixed", 80, lambda *_: mixed) == ["8.8.8.8"]


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "10.0.0", "*", "*.lan", "http://vllm", "a b", "vllm:8000", "-x"])
def test_an_invalid_list_of_networks_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="neither a network"):
        AllowedNetworks.of(["loopback", entry])
