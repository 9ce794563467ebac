"""A script for `ray submit`: one run on the cluster that this machine is the head of.

ray submit cluster/launcher/local.yaml cluster/launcher/job.py --address auto --out /shared/runs/map
"""

from __future__ import annotations

import argparse


def main() -> None:
    """Execute a run of MAP on all nodes, and print where its results are."""
    import raffed

    options = argparse.ArgumentParser()
    options.add_argument("--address", default="auto", help="address of the cluster")
    options.add_argument("--out", required=True, help="folder that all nodes mount, or a URL")
    options.add_argument("--rounds", type=int, default=20)
    given = options.parse_args()
    config = raffed.RunConfig(
        method="map",
        federation=raffed.Federation(rounds=given.rounds),
        runtime=raffed.Runtime(address=given.address),
    )
    result = raffed.run(config, given.out)
    print(f"{given.out}: {result.state}, accuracy {result.accuracy:.4f}")


if __name__ == "__main__":  # actors import this file too
    main()
