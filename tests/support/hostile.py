"""Text of the kind that models, servers and files should not send, but do."""

from __future__ import annotations

import re

from hypothesis import strategies as st

ACTS_ON_A_SCREEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
"""What must not reach a terminal or a page; tabs and new lines may."""

NASTY = (
    "\ud800",
    "half a pair \udfff in the middle",
    "\udcff",  # a byte of a file name that is no UTF-8
    "nul \x00 bell \x07 back \x08\x08",
    "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "\x9b31m\x85\x90",
    "\u202egnp.exe\u2066\u2069\u200f\u061c",
    "a line\u2028and\u2029another\r\nthird\rback",
    "e" + "\u0301" * 300,
    "\ufeff\ufffe\uffff\ufdd0\U000e0041",
    "<script>alert(1)</script> ]]> &amp; \"'`| # * _ [x](http://h) ![y](z)",
    "[bold]markup[/bold] [link=http://h]x[/link] \\[",
    "x" * 500 + "\ud83d",
    "\U0001f600 \u4e2d\u6587 \u0639\u0631\u0628\u064a",
)

texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(), max_size=40),  # halves of surrogate pairs among them
    st.lists(st.sampled_from(NASTY), max_size=4).map("".join),
)
