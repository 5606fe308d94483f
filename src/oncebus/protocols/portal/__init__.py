"""The portal: web pages to watch and manage the broker."""

from oncebus.protocols.portal.portal import Portal

__all__ = ["Portal"]
