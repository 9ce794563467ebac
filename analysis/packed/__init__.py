"""Records: the runs of a folder in two files, `records.json` and `records.parquet`.

`analysis/records/README.md` describes the two files. `python -m analysis.pack_records` makes them.
"""
