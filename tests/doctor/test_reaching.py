from __future__ import annotations

import socket

import pytest

from oncebus.doctor.findings import Status
from oncebus.doctor.reaching import addresses, hide_parameters, reaching_finding, without_parameters


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("local[2]", []),
        ("local-cluster[2,1,1024]", []),
        ("yarn", []),
        ("spark://head:7077", [("head", 7077)]),
        ("spark://one:7077,two:7078", [("one", 7077), ("two", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("sc://head", [("head", 15002)]),
        ("sc://head:443/;token=x;use_ssl=true", [("head", 443)]),
        ("sc://head:443;token=x", [("head", 443)]),
        ("sc://head;token=x", [("head", 15002)]),
        ("k8s://https://api.example.com:6443", [("api.example.com", 6443)]),
        ("k8s://https://api.example.com", [("api.example.com", 443)]),
        ("k8s://api.example.com:6443", [("api.example.com", 6443)]),
        ("spark://head:port", []),
        ("mesos://head:5050", []),
    ],
)
def test_the_addresses_of_a_cluster(url: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(url) == expected


def test_nothing_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        found = reaching_finding(url, "--master")
        assert found is not None
        assert found.status is Status.FAILED
        assert found.text == (
            f"'{url}' cannot be reached (127.0.0.1:{taken.getsockname()[1]}: Connection refused). Start it, or correct "
            "--master."
        )
        taken.listen()
        assert reaching_finding(url, "--master") is None
        # One of several masters is enough.
        assert reaching_finding(url.replace("//", "//127.0.0.1:1,"), "--master") is None


def test_a_name_that_does_not_exist() -> None:
    found = reaching_finding("sc://no-such-host.invalid:15002", "--remote")
    assert found is not None
    assert found.status is Status.FAILED


def test_a_token_is_not_shown() -> None:
    assert hide_parameters("sc://head:443/;token=secret;use_ssl=true") == "sc://head:443"
    found = reaching_finding("sc://127.0.0.1:1/;token=secret", "--remote")
    assert found is not None
    assert "secret" not in found.text


@pytest.mark.parametrize("parameters", [";token=secret", "/?token=secret", "/#secret"])
def test_parameters_in_the_wrong_place_are_hidden_too(parameters: str) -> None:
    found = reaching_finding(f"sc://127.0.0.1:1{parameters}", "--remote")
    assert found is not None
    assert found.found.startswith("'sc://127.0.0.1:1' cannot be reached (127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot cast '443;token=Top%2FSecret;user_id=me'", "cannot cast '443;…'"),
        ("parameter 'token=Top%2FSecret' is wrong", "parameter 'token=…' is wrong"),
        ("header: Bearer Top/Secret", "header: Bearer …"),
        ("no host head;token=top%2fsecret;user_id=me", "no host head;…"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_parameters_in_the_text_of_an_error(text: str, expected: str) -> None:
    assert without_parameters(text, "sc://head:443/;token=Top%2FSecret;user_id=me") == expected


def test_parameters_that_are_quoted_or_have_no_name() -> None:
    assert without_parameters(repr(("x", "a\nb")), "sc://head/;x=a%0Ab") == "('x', '…')"
    assert without_parameters("Parameter 'secret'", "sc://head/;secret") == "Parameter '…'"
    assert without_parameters("any text", "sc://head/;") == "any text"
    assert without_parameters("any text", "local[2]") == "any text"


def test_a_local_master_needs_no_connection() -> None:
    assert reaching_finding("local[2]", "--master") is None
