#!/usr/bin/env bash
# Searches for a kernel for one task, offline: with the starter model where this copy has one, else with the templates.
#   examples/search.sh TASK RUN       TASK as of `kernelwright optimize`; RUN/search is the run folder
set -euo pipefail
TASK=$1
RUN=$2/search

search() {
    printf '\n$ kernelwright optimize %s\n' "$*"
    kernelwright optimize "$@"
}

if kernelwright doctor --json | grep -q '"name": "starter model", "ok": true'; then
    echo "# Search for a kernel with the starter model: no key, no network."
    search "$TASK" --policy starter --strategy refine --turns 4 --run "$RUN" || [ $? -eq 1 ]  # 1: nothing to judge
    [ ! -f "$RUN/best.py" ] || exit 0
    echo
    echo "# The starter model found none in four tries; the templates, which are written by hand, try next."
    RUN=$RUN-template
else
    echo "# This copy has no starter model, so the template policy searches for a kernel: no key, no network."
fi
search "$TASK" --policy template --strategy refine --run "$RUN"
