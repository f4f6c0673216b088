"""Draws the pictures of docs/mechanisms.md: ``python -m tools.pictures`` writes docs/images/*.svg.

The pictures are light or dark as the reader's system is; on the site they are part of the page and follow its colours.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
LIGHT = "--ink:#1b1f24;--soft:#57606a;--blue:#e3ecf9;--orange:#fdebd8;--green:#e0f2e2;--line:#6b7685;--strong:#b3261e"
DARK = "--ink:#e6e9ee;--soft:#a7b0bd;--blue:#24405f;--orange:#5a3d1c;--green:#1f4a2b;--line:#8a94a3;--strong:#ff8a80"
COLORS = f"""
  svg.drawn {{ {LIGHT} }}
  @media (prefers-color-scheme: dark) {{ svg.drawn {{ {DARK} }} }}
  [data-md-color-scheme="default"] svg.drawn {{ {LIGHT} }}
  [data-md-color-scheme="slate"] svg.drawn {{ {DARK} }}"""
"""Variables of all pictures: those of the system's scheme, and on the site those of the page's."""
STYLE = f"""{COLORS}
  svg.drawn text {{ font: 14px sans-serif; fill: var(--ink); text-anchor: middle; }}
  svg.drawn text.small {{ font-size: 12px; fill: var(--soft); }}
  svg.drawn text.left {{ text-anchor: start; }}
  svg.drawn text.bold {{ font-weight: bold; }}
  svg.drawn text.strong {{ fill: var(--strong); font-weight: bold; }}
  svg.drawn rect, svg.drawn circle {{ stroke: var(--line); fill: none; }}
  svg.drawn .blue {{ fill: var(--blue); }}
  svg.drawn .orange {{ fill: var(--orange); }}
  svg.drawn .green {{ fill: var(--green); }}
  svg.drawn path {{ fill: none; stroke: var(--line); stroke-width: 1.6; }}
  svg.drawn path.dashed {{ stroke-dasharray: 5 4; }}
  svg.drawn path.strong {{ stroke: var(--strong); stroke-width: 2.5; }}
  svg.drawn path.head {{ fill: var(--line); stroke: none; }}
"""


class Drawing:
    """A picture that grows by its shapes.

    Args:
        width: in pixels.
        height: in pixels.
        about: what it shows, for those who don't see it.
    """

    def __init__(self, width: int, height: int, about: str) -> None:
        self._size, self._about, self._shapes = (width, height), about, [""]

    def box(self, x: int, y: int, width: int, height: int, *lines: str, color: str = "", bold: bool = True) -> None:
        """Draw a rectangle with lines of text in its middle; the first one is a title."""
        self._shapes.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" class="{color}"/>')
        top = y + height // 2 + 5 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            kind = ("bold" if bold and len(lines) > 1 else "") if number == 0 else "small"
            self.text(x + width // 2, top + 18 * number, line, kind)

    def text(self, x: int, y: int, text: str, kind: str = "small") -> None:
        """Write a line; ``kind``: small, bold, strong, left."""
        self._shapes.append(f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>')

    def record(self, x: int, y: int, text: str, color: str = "blue", radius: int = 13) -> None:
        """Draw a record: a circle with a letter or a time in it."""
        self._shapes.append(f'<circle cx="{x}" cy="{y}" r="{radius}" class="{color}"/>')
        self.text(x, y + 4, text)

    def arrow(self, x1: int, y1: int, x2: int, y2: int, kind: str = "") -> None:
        """Draw an arrow, straight along an axis."""
        self._shapes.append(f'<path d="M{x1} {y1} L{x2} {y2}" class="{kind}"/>')
        if x1 == x2:
            back = 7 if y2 > y1 else -7
            head = f"M{x2} {y2} L{x2 - 4} {y2 - back} L{x2 + 4} {y2 - back} z"
        else:
            back = 7 if x2 > x1 else -7
            head = f"M{x2} {y2} L{x2 - back} {y2 - 4} L{x2 - back} {y2 + 4} z"
        self._shapes.append(f'<path d="{head}" class="head"/>')

    def line(self, x1: int, y1: int, x2: int, y2: int, kind: str = "") -> None:
        """Draw a line; ``kind``: dashed, strong."""
        self._shapes.append(f'<path d="M{x1} {y1} L{x2} {y2}" class="{kind}"/>')

    def render(self) -> str:
        """Return the picture as SVG."""
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" class="drawn" role="img" aria-label="{escape(self._about)}">'
        )
        return "\n".join([head, f"<style>{STYLE}</style>", *self._shapes[1:], "</svg>", ""])


def time() -> Drawing:
    """Draw records out of order, the watermark behind them, and the window that it closes."""
    drawing = Drawing(
        860,
        290,
        "Records come out of order; the watermark stays five minutes behind the newest one, and a window fires when it "
        "passes its end",
    )
    drawing.text(20, 40, "records, as they come", "left small")
    times = [(200, 1), (265, 4), (330, 2), (395, 7), (460, 6), (525, 9), (590, 12), (655, 8), (720, 15)]
    newest = 0
    for x, minute in times:
        newest = max(newest, minute)
        late = minute <= newest - 5 and minute < 10 and newest >= 15
        drawing.record(x, 35, f":{minute:02}", "orange" if late else "blue", 15)
    drawing.arrow(150, 66, 800, 66)
    drawing.text(760, 84, "time of the clock")
    drawing.text(20, 125, "newest time so far", "left small")
    drawing.text(20, 160, "watermark", "left bold")
    drawing.text(20, 178, "(5 minutes behind)", "left small")
    newest = 0
    for x, minute in times:
        newest = max(newest, minute)
        drawing.text(x, 125, f":{newest:02}")
        drawing.text(x, 162, f":{newest - 5:02}" if newest >= 5 else "–", "strong" if newest - 5 >= 10 else "bold")
    drawing.line(688, 105, 688, 180, "strong")
    drawing.box(
        150,
        205,
        538,
        44,
        "window from :00 to :10",
        "takes all records with these times, whatever their order",
        color="green",
    )
    drawing.arrow(688, 227, 730, 227)
    drawing.text(792, 224, "its result", "bold")
    drawing.text(790, 242, "watermark ≥ :10")
    drawing.text(420, 276, "A record of :09 that came now would be late: dropped, or sent to a side output.")
    return drawing


def checkpoints() -> Drawing:
    """Draw barriers in streams, the task that aligns them, and what is stored."""
    drawing = Drawing(
        860,
        330,
        "Barriers flow with the records; each task stores its state when the barrier has come from all inputs, and the "
        "checkpoint is complete when all tasks have answered",
    )
    drawing.box(330, 10, 200, 46, "JobMaster", "starts checkpoint 7", color="orange")
    for y, name in ((90, "source 0"), (180, "source 1")):
        drawing.box(20, y, 120, 50, name, "stores its position", color="blue")
    drawing.line(330, 33, 80, 33, "dashed")
    drawing.arrow(80, 33, 80, 88, "dashed")
    for y, after, before in ((115, "fed", "cba"), (205, "zy", "xwvu")):
        drawing.arrow(142, y, 518, y)
        count = len(after)
        for number, letter in enumerate(after):
            drawing.record(170 + 34 * number, y, letter, "orange")
        barrier = 170 + 34 * count
        drawing.line(barrier, y - 22, barrier, y + 22, "strong")
        drawing.text(barrier, y - 27, "7", "strong")
        for number, letter in enumerate(before):
            drawing.record(barrier + 34 + 34 * number, y, letter, "blue")
    drawing.box(
        520, 105, 150, 110, "task", "waits for both barriers,", "copies its state,", "passes barrier 7 on", color="blue"
    )
    drawing.arrow(672, 160, 716, 160)
    drawing.box(718, 135, 122, 50, "sink", "prepares results", color="blue")
    drawing.box(
        150,
        272,
        520,
        42,
        "storage of checkpoints",
        "positions, state and prepared results of one point of the input",
        color="green",
    )
    drawing.arrow(80, 232, 80, 293, "dashed")
    drawing.arrow(80, 293, 148, 293, "dashed")
    drawing.arrow(595, 217, 595, 270, "dashed")
    drawing.line(779, 187, 779, 293, "dashed")
    drawing.arrow(779, 293, 672, 293, "dashed")
    drawing.line(779, 133, 779, 33, "dashed")
    drawing.arrow(779, 33, 532, 33, "dashed")
    drawing.text(660, 26, "“stored”: complete when all say so")
    drawing.text(290, 250, "blue: belongs to checkpoint 7      orange: belongs to the next one")
    return drawing


def key_groups() -> Drawing:
    """Draw keys, key groups, and subtasks that own ranges of them at two parallelisms."""
    drawing = Drawing(
        860,
        300,
        "Each key belongs to a key group by its hash; subtasks own ranges of key groups, which move when the "
        "parallelism changes",
    )
    drawing.text(20, 40, "keys", "left bold")
    for number, (key, group) in enumerate((("anna", 5), ("bert", 0), ("cleo", 2), ("dora", 7), ("emil", 5))):
        x = 185 + 150 * number
        drawing.box(x - 45, 20, 90, 30, key, color="blue")
        drawing.text(x, 70, f"hash → group {group}")
    drawing.text(20, 122, "key groups", "left bold")
    for group in range(8):
        drawing.box(140 + 86 * group, 100, 78, 34, str(group), color="green", bold=False)
    drawing.text(20, 180, "parallelism 2", "left bold")
    for index in range(2):
        drawing.box(
            140 + 344 * index,
            158,
            336,
            40,
            f"subtask {index}",
            f"state of groups {4 * index} to {4 * index + 3}",
            color="orange",
        )
    drawing.text(20, 236, "parallelism 4", "left bold")
    for index in range(4):
        drawing.box(
            140 + 172 * index,
            214,
            164,
            40,
            f"subtask {index}",
            f"groups {2 * index} and {2 * index + 1}",
            color="orange",
        )
    drawing.text(
        440,
        284,
        "Rescaling moves whole groups. Their number, the maximum parallelism, stays as long as the state lives.",
    )
    return drawing


def back_pressure() -> Drawing:
    """Draw a slow operator whose full queue stops those before it."""
    drawing = Drawing(
        860, 230, "A slow sink gives no more credit; buffers before it fill up, and the source reads more slowly"
    )
    boxes = (
        (20, "source", "waits 90 %", "green"),
        (310, "map", "waits 80 %", "green"),
        (600, "sink", "busy 100 %", "orange"),
    )
    for x, name, what, color in boxes:
        drawing.box(x, 60, 120, 60, name, what, color=color)
    for x in (160, 450):
        for number in range(4):
            drawing.box(x + 30 * number, 75, 26, 30, "■", color="blue", bold=False)
        drawing.arrow(x - 18, 90, x - 2, 90)
        drawing.arrow(x + 120, 90, x + 148, 90)
        drawing.text(x + 58, 64, "buffers, full")
        drawing.arrow(x + 110, 140, x + 6, 140, "strong")
        drawing.text(x + 58, 160, "no credit left", "strong")
    drawing.arrow(722, 90, 770, 90)
    drawing.text(812, 86, "a slow")
    drawing.text(812, 102, "database")
    drawing.text(
        430, 196, "The first vertex that is busy and not held up itself is the bottleneck; the dashboard marks it."
    )
    drawing.text(430, 216, "No record is lost and memory does not grow: the source just reads less.")
    return drawing


def two_phase() -> Drawing:
    """Draw the life of results of a sink that commits them, and what a crash does at each point."""
    drawing = Drawing(
        860,
        270,
        "Results are written where nobody reads them, prepared with the checkpoint, and shown when it is complete",
    )
    steps = (
        (20, "write", "records go into an", "open transaction", "blue"),
        (235, "prepare", "barrier 7: flushed,", "its id is stored", "blue"),
        (450, "complete", "all tasks have stored", "checkpoint 7", "orange"),
        (665, "commit", "readers see", "the results", "green"),
    )
    for x, name, first, second, color in steps:
        drawing.box(x, 40, 170, 78, name, first, second, color=color)
        if x < 660:
            drawing.arrow(x + 172, 79, x + 213, 79)
    drawing.line(427, 20, 427, 245, "strong")
    drawing.text(213, 22, "nobody sees them yet")
    drawing.text(642, 22, "they will be seen, whatever happens")
    drawing.box(
        20,
        160,
        385,
        62,
        "a crash here",
        "goes back to checkpoint 6: the transaction is aborted,",
        "and its records are read and written again",
        color="",
    )
    drawing.box(
        450,
        160,
        385,
        62,
        "a crash here",
        "goes on from checkpoint 7, which knows the id:",
        "the transaction is committed, once more if need be",
        color="",
    )
    drawing.arrow(213, 158, 213, 122, "dashed")
    drawing.arrow(642, 158, 642, 122, "dashed")
    return drawing


PICTURES = {
    "time.svg": time,
    "checkpoints.svg": checkpoints,
    "key-groups.svg": key_groups,
    "back-pressure.svg": back_pressure,
    "two-phase-commit.svg": two_phase,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw().render(), encoding="utf-8")
