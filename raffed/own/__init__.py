"""References to code outside raffed: `package.module:name`, `./file.py:name`, or an object given in Python.

- `resolve.py`: from the text to the object, here and in other processes
- `naming.py`: from the object to the text
- `names.py`: names in a configuration, and entry points
- `source_files.py`: the files behind a reference and their hashes
- `notebook_cells.py`: the source of what was defined in a notebook
- `located.py`: where code lies, without importing it
- `trusted.py`: which code in folders of runs is the user's own
- `carried.py`: the code of a run on its way to other processes
- `user_code.py`: errors that the user's own code raises
"""
