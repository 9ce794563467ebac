"""`python -m raffed` and the command `raffed`."""


def command() -> None:
    """Carry out the command line and exit with its code."""
    from raffed.cli import main

    main()


if __name__ == "__main__":
    command()
