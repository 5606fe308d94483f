"""The portal: the broker as a web page."""

from oncebus.portal.portal import Portal

__all__ = ["Portal"]
