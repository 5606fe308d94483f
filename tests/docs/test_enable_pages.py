"""Tests the pages on enabling duplicate detection, ids and windows, and the first guide: samples and quoted texts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest

import oncebus.portal
from clients import java
from oncebus.cli import main
from oncebus.durations import SECOND
from oncebus.entities import Catalogue, EntityError, Namespace, Queue, Tier, check_message, parse_timespan

from .documented import Reader, reading
from .pages import DOCS, Block, agrees, blocks, commands, links, page, program, quoted_in_table, sections

RUN = [
    "enable/command-line.md",
    "enable/template.md",
    "enable/python.md",
    "enable/javascript.md",
    "enable/java.md",
    "guides/applications.md",
    "message-ids.md",
    "window-and-throughput.md",
]
NOT_RUN = ["enable/dotnet.md", "enable/go.md", "enable/powershell.md"]
WITHOUT_SAMPLES = ["enable/README.md", "enable/portal.md"]
PAGES = [*RUN, *NOT_RUN, *WITHOUT_SAMPLES]
WAYS = [name for name in PAGES if name.startswith("enable/") and name != "enable/README.md"]

PROGRAMS = ("python", "javascript", "typescript", "java")
HEADINGS = [
    "What you need",
    "Create a queue",
    "Change the window",
    "See it work",
    "What cannot be changed",
    "Errors",
    "Next",
]
TEMPLATE = "template.json"

# Texts of the clients, not of the broker.
OTHER_WORDS = {
    "HttpResponseError",
    "HttpResponseException",
    "PKIX path building failed",
    "ResourceExistsError",
    "ResourceExistsException",
    "ResourceNotFoundError",
    "ResourceNotFoundException",
    "SSLHandshakeException",
    "ServiceRequestError",
    "CERTIFICATE_VERIFY_FAILED",
    "self-signed certificate",
}


@pytest.mark.parametrize("name", RUN)
def test_a_page_prints_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "enable/java.md" and (why_not := java.missing()) is not None:
        pytest.skip(why_not)
    monkeypatch.chdir(tmp_path)
    done: set[str] = set()
    with reading(tmp_path) as reader:
        for block in blocks(name):
            if block.language in PROGRAMS and block.language not in done:
                done.add(block.language)
                code, shown = program(name, block.language)
                assert shown
                said = reader.run(block.language, code)
                assert agrees(shown, said), said
            elif block.language == "json":
                (tmp_path / TEMPLATE).write_text(block.text)
            elif block.language == "console":
                _type(reader, block)
    assert done or any(block.language == "console" for block in blocks(name))


def _type(reader: Reader, block: Block) -> None:
    for command in commands(block):
        first, *words = shlex.split(command.line)
        assert first == "oncebus"
        result = reader.served.run(*words)
        assert agrees(command.printed, result.output), f"{command.line}\n{result.output}"
        assert (result.exit_code == 0) == ("oncebus: " not in command.printed)


@pytest.mark.parametrize("name", PAGES)
def test_every_sample_is_run_or_the_page_says_that_it_is_not(name: str) -> None:
    languages = {block.language for block in blocks(name)}
    is_run = "**Not run by the tests of this project" not in page(name).partition("\n## ")[0]
    assert is_run == (name not in NOT_RUN)
    if is_run:
        assert languages <= {*PROGRAMS, "console", "json", "sh", "text"}
    assert (name in WITHOUT_SAMPLES) == (not languages)


def test_no_page_is_forgotten() -> None:
    assert {f"enable/{path.name}" for path in (DOCS / "enable").iterdir()} == {
        name for name in PAGES if name.startswith("enable/")
    }
    table = page("enable/README.md")
    assert [name for name in WAYS if f"]({Path(name).name})" not in table] == []


@pytest.mark.parametrize("name", WAYS)
def test_every_way_has_the_same_steps(name: str) -> None:
    assert [heading for heading in sections(name) if heading in HEADINGS] == HEADINGS


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_to_start_with_and_their_flags_exist(name: str) -> None:
    lines = [line for block in blocks(name) if block.language == "sh" for line in block.text.splitlines()]
    for line in lines:
        program_, *words = shlex.split(line)
        if program_ != "oncebus":
            assert program_ in (".", "export", "keytool", "pip", "python3")
            continue
        command = main.get_command(click.Context(main), words[0])
        assert command is not None, line
        command.make_context(words[0], words[1:])


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_need_the_broker_are_typed_in_a_second_terminal(name: str) -> None:
    _, serve, rest = page(name).partition("```sh\noncebus serve")
    if not serve:
        assert all("oncebus serve" not in block.text for block in blocks(name))
        return
    below, _, after = rest.partition("```\n")
    assert "\n" not in below.rstrip("\n"), "nothing can be typed where the broker runs"
    assert "n a second terminal" in " ".join(after.partition("```")[0].split())


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_existing_files(name: str) -> None:
    found = [path for path in links(name) if path.suffix == ".md" or path.parent.name == "images"]
    assert found
    assert [path for path in found if not path.is_file()] == []


def refusals() -> set[str]:
    """Return error texts on one line: with the name of the parameter, and without it as in the portal."""
    now = 1_800_000_000_000_000
    queue = Queue(name="orders", requires_duplicate_detection=True)
    there = Catalogue().created(queue, now)
    namespace = Namespace()
    attempts: list[Callable[[], object]] = [
        lambda: Catalogue().created(replace(queue, duplicate_detection_history_time_window=5 * SECOND), now),
        lambda: parse_timespan("soon", "DuplicateDetectionHistoryTimeWindow"),
        lambda: there.updated(replace(queue, requires_duplicate_detection=False), now),
        lambda: Catalogue(namespace=Namespace(tier=Tier.BASIC)).created(queue, now),
        lambda: Catalogue().created(replace(queue, enable_express=True), now),
        lambda: there.created(queue, now),
        lambda: Catalogue().queue("orders"),
        lambda: check_message(queue, namespace, message_id="x" * 129, session=None, partition_key=None),
        lambda: check_message(queue, namespace, message_id="x", session="b", partition_key="a"),
    ]
    found = set()
    for attempt in attempts:
        with pytest.raises(EntityError) as caught:
            attempt()
        lines = caught.value.text.splitlines()
        found |= {" ".join(lines), " ".join(line for line in lines if not line.startswith("Parameter name: "))}
    return found


@pytest.mark.parametrize("name", WAYS)
def test_quoted_errors_are_those_of_the_broker(name: str) -> None:
    quoted = quoted_in_table(sections(name)["Errors"])
    assert len(quoted) >= 3
    known = refusals() | OTHER_WORDS
    assert [text for text in quoted if re.sub(r"^resources\[0\]\.properties\.\w+: ", "", text) not in known] == []


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("message-ids.md", "The argument 'MessageId' cannot exceed 128 characters."),
        ("message-ids.md", "PartitionKey:a cannot be set to a different value than SessionId:b."),
        ("window-and-throughput.md", "The value supplied must be between 00:00:20 and 7.00:00:00."),
    ],
    ids=["long id", "two keys", "window"],
)
def test_errors_quoted_in_the_text_are_those_of_the_broker(name: str, quoted: str) -> None:
    assert f"`{quoted}`" in " ".join(page(name).split())
    assert any(text.startswith(quoted) for text in refusals())


def test_the_portal_has_the_labels_that_its_page_names() -> None:
    pages = Path(oncebus.portal.__file__).parent
    # The titles of properties are in `management`.
    sources = [*pages.glob("*.py"), pages.parent / "management" / "properties.py"]
    source = "".join(path.read_text() for path in sources)
    named = set(re.findall(r"\*\*([^*]+)\*\*", page("enable/portal.md")))
    assert "Enable duplicate detection" in named
    assert [name for name in named if f'"{name}"' not in source] == []


def test_the_figures_of_the_operator_are_those_that_were_measured() -> None:
    measured = json.loads((DOCS / "bench" / "operator.json").read_text())["results"]
    rates = {(each["scenario"], each["contender"]): f"{round(each['rows_per_second'] / 1000)} k" for each in measured}
    files = {each["scenario"]: int(each["runs"]) for each in measured if "runs" in each}
    text = page("window-and-throughput.md")
    assert f"| none at the start | {rates['main', 'oncebus']} messages/s | {rates['main', 'rocksdb']} |" in text
    assert f"| 1 million | {rates['1M ids', 'oncebus']} |" in text
    assert f"| 20 million | {rates['20M ids', 'oncebus']} | {rates['20M ids', 'rocksdb']} |" in text
    assert f"| 100 million | {rates['100M ids', 'oncebus']} |" in text
    assert f"{files['20M ids']} with 22 million ids, {files['100M ids']} with 103 million" in " ".join(text.split())


def test_the_figures_of_the_benchmarks_page_are_those_that_were_measured() -> None:
    text = page("benchmarks.md")
    measured = json.loads((DOCS / "bench" / "operator.json").read_text())["results"]
    rates = {(each["scenario"], each["contender"]): f"{round(each['rows_per_second'] / 1000)} k" for each in measured}
    for row in (
        f"| floor | {rates['main', 'floor']} |",
        f"| **oncebus**, 4 M messages | **{rates['main', 'oncebus']}** |",
        f"| **oncebus**, with 100 million ids remembered | **{rates['100M ids', 'oncebus']}** |",
        f"| `dropDuplicatesWithinWatermark`, in memory, 4 M messages | {rates['main', 'memory']} |",
        f"| `dropDuplicatesWithinWatermark`, RocksDB, 4 M messages | {rates['main', 'rocksdb']} |",
        f"| `dropDuplicatesWithinWatermark`, RocksDB, 20 million ids | {rates['20M ids', 'rocksdb']} |",
    ):
        assert row in text
    # The first three medians are of brokers, the others of comparisons.
    medians = json.loads((DOCS / "bench" / "broker.json").read_text())["medians"]
    for name, figure, form in (
        ("durable sends/s, 32 awaiting senders", "sends/s, 32 senders", "{:,.0f}"),
        ("durable sends/s, batches of 100", "sends/s, batches of 100, 8 senders", "{:,.0f}"),
        ("received and completed/s", "received and completed/s", "{:,.0f}"),
        ("send to receive at 2,000 messages/s, p50", "p50 s at 2000/s", "{:.2f} s"),
        ("send to receive at 2,000 messages/s, p99", "p99 s at 2000/s", "{:.2f} s"),
        ("one message through an idle broker", "s, one message, idle", "{:.2f} s"),
    ):
        assert f"| {name} | {' | '.join(form.format(each[figure]) for each in list(medians.values())[:3])} |" in text
