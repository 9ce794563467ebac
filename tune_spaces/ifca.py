"""K and the draw of the first models of IFCA: K 2 and 4 are the authors' (jichan3751/ifca); 3 and 6 lie
around them. Whether clusters separate depends on the first models.
"""

from __future__ import annotations

SPACE = {"clusters": [2, 3, 4, 6], "redraw": [0, 1, 2]}
