"""`python -m raffed` is `raffed`."""

import sys

if __name__ == "__main__":
    try:
        from raffed.cli import main
    except KeyboardInterrupt:  # while this is loaded nothing listens for it yet
        print("raffed: stopped before anything was written", file=sys.stderr)
        exec("")  # so that Python forgets the interruption (raffed/cli/signals.py)
        raise SystemExit(130) from None
    main()
