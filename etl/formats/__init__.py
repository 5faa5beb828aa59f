"""Bytes to rows: one small file per format behind the contract in `format`, and the unit files in between.

Everything streams with bounded memory; nothing here moves a file or knows what a stage is.
The transform stage reads sources and writes unit files through this room, the load stage reads them back.
"""

import gc

# Rows are made by the million and never form a cycle. With the usual threshold the collector would look
# through them every 700 rows and find nothing, which takes a sixth of the time.
gc.set_threshold(100_000, 20, 20)
