"""`python -m raffed` is `raffed`."""

from raffed.cli import main

if __name__ == "__main__":
    main()
