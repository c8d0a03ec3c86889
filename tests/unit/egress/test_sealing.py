from __future__ import annotations

import pytest

from speciate.egress.sealing import Sealer, SecretKeyError, split_keys

OLD, NEW = "o" * 32, "n" * 40
SECRET = "sk-secret\nwith a line — and é"


def test_a_secret_opens_for_its_purpose_alone() -> None:
    sealer = Sealer([OLD])
    sealed = sealer.seal("policy-key:1", SECRET)
    assert SECRET not in sealed
    assert sealer.seal("policy-key:1", SECRET) != sealed
    assert sealer.open("policy-key:1", sealed) == SECRET
    with pytest.raises(SecretKeyError):
        sealer.open("policy-key:2", sealed)


@pytest.mark.parametrize("keys", [(), (NEW,)])
def test_without_its_key_the_error_names_the_remedy(keys: tuple[str, ...]) -> None:
    sealed = Sealer([OLD]).seal("p", SECRET)
    with pytest.raises(SecretKeyError, match="SPECIATE_SECRET_KEY") as caught:
        Sealer(keys).open("p", sealed)
    assert SECRET not in str(caught.value)
    assert OLD not in str(caught.value)
    assert caught.value.remedy


def test_a_tampered_secret_does_not_open() -> None:
    sealer = Sealer([OLD])
    sealed = sealer.seal("p", SECRET)
    for place in (0, 10, len(sealed) - 2):
        changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
        with pytest.raises(SecretKeyError):
            sealer.open("p", changed)


def test_keys_are_rotated() -> None:
    sealed = Sealer([OLD]).seal("p", SECRET)
    both = Sealer([NEW, OLD])
    assert both.open("p", sealed) == SECRET
    assert Sealer([NEW]).open("p", both.renew("p", sealed)) == SECRET


def test_first_key_signs() -> None:
    def public(*keys: str) -> bytes:
        return Sealer(keys).signing_key().public_key().public_bytes_raw()

    assert public(OLD) == public(OLD, NEW) != public(NEW, OLD) == public(NEW)
    with pytest.raises(SecretKeyError, match="exports cannot be signed without SPECIATE_SECRET_KEY"):
        Sealer().signing_key()


def test_several_keys_in_a_text() -> None:
    assert split_keys(f" {NEW} ,\n{OLD}\n") == (NEW, OLD)
    for text in ("", " , ", "short", f"{NEW},short"):
        with pytest.raises(ValueError, match="at least 32"):
            split_keys(text)
