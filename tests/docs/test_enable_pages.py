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

import oncebus.protocols.portal
from oncebus.model.entities import Catalogue, EntityError, Namespace, Queue, Tier, check_message, parse_timespan
from oncebus.programs.cli import main
from oncebus.values.durations import SECOND
from tests.clients import java

from .documented import Reader, reading
from .pages import DOCS, Block, agrees, blocks, commands, links, page, program, quoted_in_table, sections

ENABLE = "guides/enable/README.md"
TOOLS = "guides/enable/tools.md"
PROGRAMS = "guides/enable/programs.md"
WHOLE = ["guides/applications.md", "guides/message-ids.md", "reference/windows.md"]
"""The other pages whose samples run."""
WAYS_RUN = [
    f"{TOOLS}#The command line",
    f"{TOOLS}#A template",
    f"{PROGRAMS}#Python",
    f"{PROGRAMS}#JavaScript",
    f"{PROGRAMS}#TypeScript",
    f"{PROGRAMS}#Java",
]
NOT_RUN = [f"{TOOLS}#PowerShell", f"{PROGRAMS}#.NET", f"{PROGRAMS}#Go"]
PORTAL = f"{TOOLS}#The portal"
RUN = [*WAYS_RUN, *WHOLE]
WAYS = [*WAYS_RUN, *NOT_RUN, PORTAL]
PAGES = [ENABLE, TOOLS, PROGRAMS, *WHOLE]

LANGUAGES = ("python", "javascript", "typescript", "java")
STEPS = ["Create a queue", "Change the window", "See it work"]
TEMPLATE = "template.json"


@pytest.mark.parametrize("name", RUN)
def test_a_page_prints_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.endswith("#Java") and (why_not := java.missing()) is not None:
        pytest.skip(why_not)
    monkeypatch.chdir(tmp_path)
    done: set[str] = set()
    with reading(tmp_path) as reader:
        for block in blocks(name):
            if block.language in LANGUAGES and block.language not in done:
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


@pytest.mark.parametrize("name", [*RUN, *NOT_RUN, PORTAL])
def test_every_sample_is_run_or_its_section_says_that_it_is_not(name: str) -> None:
    languages = {block.language for block in blocks(name)}
    is_run = "**Not run by the tests of this project" not in page(name).partition("\n##")[0]
    assert is_run == (name not in NOT_RUN)
    if is_run:
        assert languages <= {*LANGUAGES, "console", "json", "sh", "text"}
    assert (name == PORTAL) == (not languages)


def test_no_way_is_forgotten() -> None:
    assert {path.name for path in (DOCS / "guides" / "enable").iterdir()} == {
        Path(name).name for name in (ENABLE, TOOLS, PROGRAMS)
    }
    there = [f"{name}#{heading}" for name in (TOOLS, PROGRAMS) for heading in sections(name)]
    assert sorted(name for name in there if not name.endswith("#What you need")) == sorted(WAYS)
    index = page(ENABLE)
    for name in WAYS:
        path, _, heading = name.partition("#")
        anchor = re.sub(r"[^a-z-]", "", heading.lower().replace(" ", "-"))
        assert f"]({Path(path).name}#{anchor})" in index


@pytest.mark.parametrize("name", [name for name in WAYS if not name.endswith("#TypeScript")])
def test_every_way_has_the_same_steps(name: str) -> None:
    assert re.findall(r"^### (.+)$", page(name), re.MULTILINE)[:3] == STEPS


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_to_start_with_and_their_flags_exist(name: str) -> None:
    lines = [line for block in blocks(name) if block.language == "sh" for line in block.text.splitlines()]
    for line in lines:
        program_, *words = shlex.split(line)
        if program_ != "oncebus":
            assert program_ in (".", "cp", "export", "keytool", "pip", "python3")
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
    there = Catalogue().create(queue, now)
    namespace = Namespace()
    attempts: list[Callable[[], object]] = [
        lambda: Catalogue().create(replace(queue, duplicate_detection_history_time_window=5 * SECOND), now),
        lambda: parse_timespan("soon", "DuplicateDetectionHistoryTimeWindow"),
        lambda: there.update(replace(queue, requires_duplicate_detection=False), now),
        lambda: Catalogue(namespace=Namespace(tier=Tier.BASIC)).create(queue, now),
        lambda: Catalogue().create(replace(queue, enable_express=True), now),
        lambda: there.create(queue, now),
        lambda: Catalogue().queue("orders"),
        lambda: check_message(queue, namespace, message_id="x" * 129, session=None, partition_key=None),
        lambda: check_message(queue, namespace, message_id="x", session="b", partition_key="a"),
    ]
    found = set()
    for attempt in attempts:
        with pytest.raises(EntityError) as caught:
            attempt()
        lines = str(caught.value).splitlines()
        found |= {" ".join(lines), " ".join(line for line in lines if not line.startswith("Parameter name: "))}
    return found


def test_quoted_errors_are_those_of_the_broker() -> None:
    quoted = quoted_in_table(sections(ENABLE)["Errors"])
    assert len(quoted) >= 8
    assert [text for text in quoted if text not in refusals()] == []


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("guides/message-ids.md", "The argument 'MessageId' cannot exceed 128 characters."),
        ("guides/message-ids.md", "PartitionKey:a cannot be set to a different value than SessionId:b."),
        ("reference/windows.md", "The value supplied must be between 00:00:20 and 7.00:00:00."),
    ],
    ids=["long id", "two keys", "window"],
)
def test_errors_quoted_in_the_text_are_those_of_the_broker(name: str, quoted: str) -> None:
    assert f"`{quoted}`" in " ".join(page(name).split())
    assert any(text.startswith(quoted) for text in refusals())


def test_the_portal_has_the_labels_that_its_page_names() -> None:
    pages = Path(oncebus.protocols.portal.__file__).parent
    # The titles of properties are in `management`.
    sources = [*pages.glob("*.py"), pages.parent / "management" / "properties.py"]
    source = "".join(path.read_text() for path in sources)
    named = set(re.findall(r"\*\*([^*]+)\*\*", page(PORTAL)))
    assert "Enable duplicate detection" in named
    assert [name for name in named if f'"{name}"' not in source] == []


def test_the_figures_of_the_operator_are_those_that_were_measured() -> None:
    measured = json.loads((DOCS / "bench" / "operator.json").read_text())["results"]
    rates = {(each["scenario"], each["contender"]): f"{round(each['rows_per_second'] / 1000)} k" for each in measured}
    files = {each["scenario"]: int(each["runs"]) for each in measured if "runs" in each}
    text = page("reference/windows.md")
    assert f"| none at the start | {rates['main', 'oncebus']} messages/s | {rates['main', 'rocksdb']} |" in text
    assert f"| 1 million | {rates['1M ids', 'oncebus']} |" in text
    assert f"| 20 million | {rates['20M ids', 'oncebus']} | {rates['20M ids', 'rocksdb']} |" in text
    assert f"| 100 million | {rates['100M ids', 'oncebus']} |" in text
    assert f"{files['20M ids']} with 22 million ids, {files['100M ids']} with 103 million" in " ".join(text.split())


def test_the_figures_of_the_benchmarks_page_are_those_that_were_measured() -> None:
    text = page("reference/benchmarks.md")
    measured = json.loads((DOCS / "bench" / "operator.json").read_text())["results"]
    rates = {(each["scenario"], each["contender"]): f"{round(each['rows_per_second'] / 1000)} k" for each in measured}
    for row in (
        f"| floor | {rates['main', 'floor']} |",
        f"| **oncebus**, 4 M messages | **{rates['main', 'oncebus']}** |",
        f"| `dropDuplicatesWithinWatermark`, in memory, 4 M messages | {rates['main', 'memory']} |",
        f"| `dropDuplicatesWithinWatermark`, RocksDB, 4 M messages | {rates['main', 'rocksdb']} |",
    ):
        assert row in text


def test_the_figures_of_the_broker_are_those_that_were_measured() -> None:
    text = page("reference/windows.md")
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
