"""References to code outside raffed: `package.module:name`, `./file.py:name`, or an object given in Python.

- `resolve.py`: from the text to the object, here and in other processes
- `naming.py`: from the object to the text
- `source_files.py`: the files behind a reference and their hashes
- `notebook_cells.py`: the source of what was defined in a notebook
- `user_code.py`: errors that the user's own code raises
"""
