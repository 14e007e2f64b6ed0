#!/usr/bin/env bash
# The main job end to end on a CPU: each command is shown, then run. `make quickstart` sets up first, then runs this.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export OMP_NUM_THREADS=1
RUN=${RUN:-runs/quickstart}

show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

show kernelwright doctor

echo
echo "# Judge the bundled candidates: right, wrong, racing, out of bounds, not compiling, cheating."
show python examples/judge_bundled.py "$RUN/candidates"

echo
bash examples/search.sh row_softmax "$RUN"

echo
show kernelwright report "$RUN/search" --html "$RUN/search.html"
show kernelwright report "$RUN/candidates" --html "$RUN/candidates.html"
printf '\nreports: %s %s\n' "$PWD/$RUN/candidates.html" "$PWD/$RUN/search.html"
