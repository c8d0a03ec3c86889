"""The form of an answer in SEARCH/REPLACE blocks as a grammar, for servers that let a model write nothing else."""

from __future__ import annotations

from typing import Final

DIFF_GRAMMAR: Final = r"""root ::= line* block (line* block)* line*
block ::= "<<<<<<< SEARCH\n" line* "=======\n" line* ">>>>>>> REPLACE\n"
line ::= [ \t]* (plain | less | equal | more)? "\n"
plain ::= [^ \t\n<=>] [^\n]*
less ::= "<" "<"? "<"? "<"? ([^<\n] [^\n]*)?
equal ::= "=" "="? "="? "="? ([^=\n] [^\n]*)?
more ::= ">" ">"? ">"? ">"? ([^>\n] [^\n]*)?
"""
"""Grammar in the EBNF of xgrammar and llguidance. A block that was begun can only be ended: no line in it looks like a
mark (five or more of its characters), as ``prompts.diff`` reads them. Prose, headings of files and separators may stand
between blocks."""
