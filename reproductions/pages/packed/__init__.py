"""Records: the runs of a folder in two files, `records.json` and `records.parquet`.

`reproductions/records/README.md` describes the two files, which `python -m
reproductions.pages.pack_records` makes.
"""
