"""The portal: web pages to watch and manage the broker."""

from oncebus.portal.portal import Portal

__all__ = ["Portal"]
