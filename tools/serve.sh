#!/usr/bin/env bash
# Serves the embedded model on this machine until Ctrl-C, and says how to try it:
#
#   tools/serve.sh [BUILD] [PORT]   build/release and 8000 without
#
# PORT 0 is one that is free. Needs BUILD/bin/espalier; `make serve` builds it
# first.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
port=${2:-8000}

# Passes on what the server says, and after its "listening on" how to try it.
explain() {
  local line url
  while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ $line == *"listening on "* ]] || continue
    url=${line##*listening on }
    cat <<END

In a browser: $url
In a shell:

  curl -N $url/v1/completions -H 'Content-Type: application/json' \\
    -d '{"prompt": "Where is the station?", "num_beams": 4, "n": 2, "stream": true}'

Ctrl-C ends it.
END
  done
}

exec "$build/bin/espalier" serve -m models/en-fr --num-beams 4 --port "$port" \
  --trace-requests 16 2> >(trap '' INT TERM; explain >&2)
