"""Data of one's own: arrays, files, folders and other libraries' data sets, as arrays with class labels."""
