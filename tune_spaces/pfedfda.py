"""How pFedFDA mixes local and global statistics: the two ways that McLaughlin and Su 2024 compare (two β or
one), and only the local ones, which their code offers as well.
"""

from __future__ import annotations

SPACE = {"beta": ["two", "one", "local"]}
