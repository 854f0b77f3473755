"""Task families: where texts and questions come from.

A new data set is a module in `documents/` (questions among paragraphs), `haystacks/` (facts hidden
in long texts), `conversations/` (chats) or `made/` (made from a seed), and a line in `named`, which
gives it its name on the command line. `files/` reads and writes what data sets are stored in;
`commands/data` builds them; `audit/` looks for leaks.
"""
