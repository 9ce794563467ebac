"""The files of a run: metric rows in Parquet and one run.json. Each file is written completely or not
at all.
"""
