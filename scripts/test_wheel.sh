#!/usr/bin/env bash
# Build the wheel, install it without extras into a clean environment, and use it from an empty folder.
#
#   scripts/test_wheel.sh                    # help, lists and the demo with its extra (minutes)
#   DEMO=no scripts/test_wheel.sh            # without the demo
#   PYTHON=python3.12 scripts/test_wheel.sh  # with another Python
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH ROSEWOOD_DATA
pip_install() { "$work/env/bin/pip" install --quiet --disable-pip-version-check -c "$root/constraints.txt" "$@"; }

"${PYTHON:-python3}" -m venv "$work/env"
pip_install build
"$work/env/bin/python" -m build --wheel --outdir "$work/dist" "$root" > "$work/build.log" || { cat "$work/build.log"; exit 1; }
wheel=$(ls "$work"/dist/rosewood-*.whl)
echo "built $(basename "$wheel") ($(du -k "$wheel" | cut -f1) kB)"

pip_install "$wheel"
mkdir "$work/empty" && cd "$work/empty"
export PATH="$work/env/bin:$PATH" HF_HUB_OFFLINE=1
python - "$work/env" <<'PYTHON'
import sys, rosewood
assert rosewood.__file__.startswith(sys.argv[1]), f"not the wheel: {rosewood.__file__}"
for name in rosewood.__all__:
    getattr(rosewood, name)
print(f"every name of rosewood {rosewood.__version__} can be imported on Python {sys.version.split()[0]}")
PYTHON
rosewood --help > help.txt && grep -q "train" help.txt
for kind in recipes tasks suites attacks models lexicons; do
  rosewood list "$kind" > "$kind.txt"
  echo "rosewood list $kind: $(wc -l < "$kind.txt") lines"
done
rosewood explain rose-second > explain.txt
if rosewood demo > demo.txt 2>&1; then echo "the demo ran without its extra"; exit 1; fi
grep -q "demo" demo.txt  # the error names the extra

if [ "${DEMO:-yes}" = yes ]; then
  pip_install "$wheel[demo]"
  rosewood demo
fi
echo "The wheel works."
