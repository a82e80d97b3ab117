"""Has Helm install the chart: python helm_program.py CHART KUBECONFIG RELEASE, with values on stdin.

Prints Helm's record of the release as JSON, or what Helm said, with exit code 1.
"""

import asyncio
import json
import sys

import helm_sdkpy


def main() -> int:
    """Install once."""
    chart, kubeconfig, release = sys.argv[1:]
    values = json.load(sys.stdin)
    configuration = helm_sdkpy.Configuration(namespace="default", kubeconfig=kubeconfig)
    try:
        made = asyncio.run(helm_sdkpy.Install(configuration).run(release, chart, values=values, wait=False))
    except helm_sdkpy.HelmError as error:
        print(error)
        return 1
    print(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
