"""`python -m raffed` and the command `raffed`."""


def command() -> None:
    """Carry out the command line and exit with its code.

    Ctrl-C while the command line itself is being loaded ends with a line and exit code 130, as it does later.
    """
    told = "raffed: stopped before anything was written"  # as raffed.cli.signals.NOTHING
    try:
        from raffed.cli import main

        told = "raffed: stopped"
        main()
    except KeyboardInterrupt:  # nothing listens for it yet, or any more
        import sys

        print(told, file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    command()
