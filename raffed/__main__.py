"""`python -m raffed` is `raffed`."""

import sys

if __name__ == "__main__":
    try:
        from raffed.cli import main
    except KeyboardInterrupt:  # while this is loaded nothing listens for it yet
        print("raffed: stopped before anything was written", file=sys.stderr)
        raise SystemExit(130) from None
    main()
