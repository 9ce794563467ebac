"""The functions behind the command line, as a script calls them."""
