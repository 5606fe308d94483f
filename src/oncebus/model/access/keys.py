"""The namespace's authorization rules, in a file that only its owner can read.

The file is JSON: {"format": 1, "rules": [{"name", "rights": [...], "primary", "secondary"}, ...]}. It is never partly
written: a new version gets the file's name only after it is written and synced. Processes that change the file
concurrently wait for each other on a lock file beside it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from oncebus.model.access.authorization_rule import (
    MOST_RULES,
    ROOT_RULE,
    AuthorizationRule,
    BadAuthorizationRule,
    WhichKey,
    fresh_rule,
    rule_named,
)
from oncebus.model.access.rights import Right, Rights
from oncebus.values import disk
from oncebus.values.errors import NOT_READY, ErrorKind, OncebusError

FORMAT = 1
_LARGEST_FILE = 1 << 20

Rules = tuple[AuthorizationRule, ...]


class KeyFileError(OncebusError):
    """The key file cannot be used. The message never contains a key."""

    kind = ErrorKind.BUSY
    told: str | None = NOT_READY


class RuleRefused(KeyFileError):
    """A change would break a limit on the namespace's rules; the file itself is fine.

    The message may go to remote clients, so it does not contain the file's path.
    """

    kind = ErrorKind.CONFLICT
    told = None


class _Stamp(NamedTuple):
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class KeyFile:
    """The rules in the file at a path. Changes by other processes are visible at the next read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._stamp: _Stamp | None = None
        self._rules: Rules = ()

    def __repr__(self) -> str:
        return f"KeyFile({str(self.path)!r})"

    def create(self) -> bool:
        """Create the file with the default rule and random keys unless it exists. Return whether it was created."""
        if self.path.exists():
            return False
        rule = fresh_rule(ROOT_RULE, [Right.MANAGE])
        with _report_errors(self.path, "created"):
            disk.make_folder(self.path.parent, mode=0o700)
            return disk.publish_new(self.path.parent, self.path.name, [_content((rule,))], mode=disk.PRIVATE)

    def rules(self) -> Rules:
        """Return all rules. Reads the file again if it has changed."""
        with _report_errors(self.path, "read"):
            stamp = _check_file(self.path, os.stat(self.path))
            if stamp != self._stamp:
                self._stamp, self._rules = _read(self.path)
        return self._rules

    def rule(self, name: str) -> AuthorizationRule:
        """Return the rule called `name`. Raises `KeyFileError` if there is none."""
        return _find(self.path, self.rules(), name)

    def add(self, name: str, rights: Iterable[Right]) -> AuthorizationRule:
        """Add a rule with random keys. Raises `KeyFileError` if the name is taken."""
        added = fresh_rule(name, rights)

        def change(rules: Rules) -> Rules:
            if rule_named(rules, name) is not None:
                raise KeyFileError(f"Authorization rule '{name}' already exists in '{self.path}'.")
            return _with(rules, added)

        self._change(change)
        return added

    def put(self, name: str, rights: Iterable[Right]) -> AuthorizationRule:
        """Set the rights of a rule. An existing rule keeps its keys; otherwise a rule with random keys is added."""
        return _find(self.path, self.put_all({name: rights}), name)

    def put_all(self, wanted: Mapping[str, Iterable[Right]]) -> Rules:
        """Set the rights of several rules as `put` does, all of them or none. Return all rules of the file."""
        fresh = [fresh_rule(name, rights) for name, rights in wanted.items()]

        def change(rules: Rules) -> Rules:
            for each in fresh:
                old = rule_named(rules, each.name)
                if old is None:
                    rules = _with(rules, each)
                else:
                    rules = tuple(replace(rule, rights=each.rights) if rule is old else rule for rule in rules)
            return _still_managed(rules, fresh[-1].name) if fresh else rules

        return self._change(change)

    def remove(self, name: str) -> None:
        """Remove a rule. Tokens signed with its keys are refused from now on."""

        def change(rules: Rules) -> Rules:
            removed = _find(self.path, rules, name)
            return _still_managed(tuple(rule for rule in rules if rule is not removed), name)

        self._change(change)

    def rotate(self, name: str, which: WhichKey, key: str | None = None) -> AuthorizationRule:
        """Replace one key with `key`, or with a random one if `key` is None.

        Tokens signed with the old key are refused from now on.
        """

        def change(rules: Rules) -> Rules:
            old = _find(self.path, rules, name)
            return tuple(rule.rotate_key(which, key) if rule is old else rule for rule in rules)

        return _find(self.path, self._change(change), name)

    def _change(self, change: Callable[[Rules], Rules]) -> Rules:
        with _report_errors(self.path, "changed"), _lock(self.path):
            _, rules = _read(self.path)
            changed = change(rules)
            disk.publish(self.path.parent, self.path.name, [_content(changed)], mode=disk.PRIVATE)
        return changed


def _with(rules: Rules, added: AuthorizationRule) -> Rules:
    if len(rules) >= MOST_RULES:
        raise RuleRefused(f"The namespace already has {MOST_RULES} authorization rules, the maximum. Remove one first.")
    return (*rules, added)


def _still_managed(rules: Rules, name: str) -> Rules:
    if not any(Right.MANAGE in rule.rights for rule in rules):
        raise RuleRefused(f"Authorization rule '{name}' is the last one with Manage. Add another one first.")
    return rules


def _find(path: Path, rules: Rules, name: str) -> AuthorizationRule:
    rule = rule_named(rules, name)
    if rule is not None:
        return rule
    raise KeyFileError(
        f"Authorization rule '{name}' is not in '{path}'. It contains {', '.join(rule.name for rule in rules)}."
    )


def _check_file(path: Path, status: os.stat_result) -> _Stamp:
    """Return the file's stamp, which changes with its content.

    Raises `KeyFileError` unless it is a regular file that only its owner can access.
    """
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError(f"Key file '{path}' is not a regular file.")
    if mode & 0o077:
        raise KeyFileError(f"Key file '{path}' is open to other users (mode {mode:04o}). Run: chmod 600 '{path}'")
    if status.st_uid != os.geteuid():
        raise KeyFileError(
            f"Key file '{path}' belongs to user {status.st_uid}, not {os.geteuid()}. Run: chown {os.geteuid()} '{path}'"
        )
    return _Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read(path: Path) -> tuple[_Stamp, Rules]:
    # O_NONBLOCK: opening a named pipe would otherwise wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        stamp = _check_file(path, os.fstat(descriptor))
        content = file.read(_LARGEST_FILE + 1)
    rules = _parse(content)
    if not rules:
        # Raised outside `_parse`, with no cause: a parser's error contains the text it could not parse, with its keys.
        raise KeyFileError(
            f"Key file '{path}' is damaged. Restore it, or delete it: the next start creates one with new keys."
        )
    return stamp, rules


def _parse(content: bytes) -> Rules | None:
    if len(content) > _LARGEST_FILE:
        return None
    try:
        document: Any = json.loads(content)
        if document["format"] != FORMAT:
            return None
        rules = tuple(
            AuthorizationRule(
                entry["name"],
                Rights([Right(right) for right in entry["rights"]]),
                entry["primary"],
                entry["secondary"],
            )
            for entry in document["rules"]
        )
    except (ValueError, TypeError, KeyError, RecursionError, BadAuthorizationRule):
        return None
    return rules if len({rule.name for rule in rules}) == len(rules) else None


def _content(rules: Rules) -> bytes:
    entries = [
        {
            "name": rule.name,
            "rights": list(Rights(rule.rights).order),
            "primary": rule.primary_key,
            "secondary": rule.secondary_key,
        }
        for rule in rules
    ]
    return json.dumps({"format": FORMAT, "rules": entries}, indent=2).encode() + b"\n"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock on changes to the file. The lock is a separate file because the key file itself is replaced."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path.with_name(f"{path.name}.lock"), flags, disk.PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _report_errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        raise KeyFileError(f"Key file '{path}' cannot be {what}: {reason}.") from error
