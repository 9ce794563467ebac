"""References to code outside raffed: `package.module:name`, `./file.py:name`, or an object given in Python.

- `gate.py`: which code may be imported, and which names that were read lead below their folder
- `located.py`: where code lies and the hashes of its files, without importing it
- `resolve.py`: from the text to the object, here and in other processes
- `names.py`: from the object to the text, names in a configuration, and entry points
- `carried.py`: the code of a run on its way to other processes, and the source of notebook code
- `user_code.py`: errors that the user's own code raises
"""
