"""Checks of accessibility: problems of a page for people who see it badly, or not at all."""

from __future__ import annotations

from playwright.sync_api import Page

_UNLABELLED = """() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
    .filter((each) => each.labels.length === 0).map((each) => `${each.name} has no label`)"""

_REPEATED_IDS = """() => {
    const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
    return ids.filter((each, at) => ids.indexOf(each) !== at).map((each) => `${each} is an id twice`);
}"""

# Text with less contrast to its background than WCAG requires. Disabled controls may be fainter.
_FAINT = """() => {
    const SKIPPED = "script, noscript, svg, option, fieldset:disabled";
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const light = (colour) => {
        const [red, green, blue] = colour.slice(0, 3).map((part) => linear(part / 255));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const ground = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const colour = parts(getComputedStyle(each).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.99) return colour;
        }
        return [255, 255, 255];
    };
    const faint = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode.data.trim();
        const element = walker.currentNode.parentElement;
        if (!text || element.closest(SKIPPED) || element.control?.disabled) continue;
        const pair = [light(parts(getComputedStyle(element).color)), light(ground(element))];
        const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        if (ratio < 4.5) faint.push(`${text.slice(0, 40)} has contrast ${ratio.toFixed(2)}`);
    }
    return faint;
}"""


def hard_to_use(page: Page) -> list[str]:
    """Return all problems of a page, in words."""
    return [each for script in (_UNLABELLED, _REPEATED_IDS, _FAINT) for each in page.evaluate(script)]
