"""How pFedFDA mixes local and global statistics: the two ways that McLaughlin and Su 2024 compare (two β or
one). The ridge is 1 in their code; smaller ones shrink features of small variance less.
"""

from __future__ import annotations

SPACE = {"beta": ["two", "one"], "ridge": [0.1, 0.3, 1.0]}
