#!/usr/bin/env bash
# Run a core of the tests with the lowest and the highest version of transformers that pyproject.toml allows, or with
# the versions that are given. Everything else comes from the environment of the checkout.
#
#   scripts/test_transformers_range.sh            # both ends
#   scripts/test_transformers_range.sh 5.5.4 5.10.4
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
python=${PYTHON:-$root/.venv/bin/python}
lowest=$(sed -n 's/^  "transformers>=\([0-9.]*\),.*/\1/p' pyproject.toml)
highest=$(sed -n 's/^transformers==//p' constraints.txt)
tests=${TESTS:-"tests/training/test_trainer_parity.py tests/test_optim.py tests/training/test_resume.py"}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in "${@:-$lowest $highest}"; do
  for each in $version; do
    "$python" -m pip install --quiet --disable-pip-version-check --target "$work/$each" "transformers==$each" --no-deps
    needs=$("$python" - "$work/$each" <<'PYTHON'
import sys
from importlib.metadata import distributions
from packaging.requirements import Requirement
(found,) = [each for each in distributions(path=[sys.argv[1]]) if each.metadata["Name"] == "transformers"]
wanted = [Requirement(each) for each in found.requires or []]
print(*(str(each).replace(" ", "") for each in wanted if each.marker is None and each.name in ("tokenizers", "huggingface-hub")))
PYTHON
    )
    # shellcheck disable=SC2086
    "$python" -m pip install --quiet --disable-pip-version-check --target "$work/$each" --no-deps --upgrade $needs
    echo "== transformers $each with $needs"
    # shellcheck disable=SC2086
    PYTHONPATH="$work/$each:$root/src" HF_HUB_OFFLINE=1 "$python" -m pytest -q -p no:cacheprovider $tests
  done
done
