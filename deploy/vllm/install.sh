#!/usr/bin/env bash
# Builds .venv-vllm at the top of the clone: real vLLM on CPU, in an environment of its own, because vLLM pins other
# versions of FastAPI, Starlette and pydantic than the gateway does. A second run with the same lock does nothing.
#
# Usage: deploy/vllm/install.sh [VENV]        PYTHON=python3.11 chooses the interpreter
# Exit status: 0 ready; 1 the installation failed; 3 no torch build for CPU is to be had (message on stderr)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${1:-"$root/.venv-vllm"}
python=${PYTHON:-python3}
lock="$here/cpu-lock.txt"
stamp="$venv/.lock-digest"

digest=$("$python" -c 'import hashlib, pathlib, sys
print(hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes()).hexdigest())' "$lock")
if [[ -x "$venv/bin/python" && -f "$stamp" && $(<"$stamp") == "$digest" ]]; then
    echo "vLLM environment is up to date: $venv"
    exit 0
fi

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [[ $version != 3.11 ]]; then
    echo "error: the lock is made for Python 3.11, $python is $version; set PYTHON=python3.11" >&2
    exit 1
fi

torch=$(grep '^torch==' "$lock")
rm -f "$stamp"
"$python" -m venv --clear "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check -qq)

# torch first and alone: it is the one requirement that most package indexes do not carry.
if ! "${pip[@]}" install --no-deps "$torch"; then
    cat >&2 <<MESSAGE
error: $torch cannot be had from the configured package index, so real vLLM cannot run here.
       It is the CPU build of PyTorch, published on PyTorch's own index. Name that index (or a folder that holds
       the wheel) for pip and try again, for instance:  PIP_EXTRA_INDEX_URL=URL make install-vllm
MESSAGE
    exit 3
fi
"${pip[@]}" install --no-deps -r "$lock" "setuptools<81"
"$venv/bin/python" -c 'import vllm' >/dev/null || { echo "error: vLLM was installed but cannot be imported" >&2; exit 1; }
echo "$digest" > "$stamp"
echo "vLLM environment is ready: $venv"
