"""Install torch into this environment, where the package index has a CPU build of it.

    python tests/support/install_cpu_torch.py

Elsewhere the same version is a CUDA build with gigabytes of libraries; then nothing is installed, and a line on stderr
says so. The tests that need torch skip there, each with its reason.
"""

import json
import subprocess
import sys

TORCH = "torch==2.13.0"
NUMPY = "numpy==2.2.6"  # torch warns without it
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def main() -> None:
    asked = subprocess.run([*PIP, "--dry-run", "--report", "-", TORCH], stdout=subprocess.PIPE, text=True, check=False)
    if asked.returncode:
        print(f"NOT TESTED with torch: {TORCH} cannot be installed (see above)", file=sys.stderr)
        return
    wanted = [item["metadata"] for item in json.loads(asked.stdout)["install"]]
    cuda = sorted(package["name"] for package in wanted if package["name"].startswith(("nvidia-", "cuda-")))
    if cuda:
        print(f"NOT TESTED with torch: {TORCH} is no CPU build here, it needs {', '.join(cuda)}", file=sys.stderr)
        return
    subprocess.run([*PIP, TORCH, NUMPY], check=True)


if __name__ == "__main__":
    main()
