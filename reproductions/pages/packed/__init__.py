"""Records: the runs of a folder in one file, `records.parquet`.

`reproductions/records/README.md` describes the file, which `python -m reproductions.pages.pack_records`
makes.
"""
