"""examples/server answers as `espalier serve` does.

    example_server_test.py PROGRAM CACHE SERVER
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.asking import ask
from live.replica import PATIENCE, Replica

QUESTION = {"prompt": "Where is the station?", "max_tokens": 40, "n": 2}


def main(server: str) -> None:
    with Replica("--num-beams", "4") as replica:
        expected = ask(replica.url, QUESTION)
    process = subprocess.Popen([server, environment.MODEL, "0"],
                               stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        found = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)\n", line)
        assert found, line
        answer = ask(found[1], QUESTION)
        assert answer.is_good, answer
        assert answer.choices() == expected.choices(), answer
        stream = ask(found[1], {**QUESTION, "stream": True})
        assert stream.num_ends == 1, stream
        assert stream.choices() == expected.choices(), stream
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    failed = subprocess.run([server, "nowhere", "0"], capture_output=True,
                            text=True, check=False)
    assert failed.returncode == 1, failed
    assert "nowhere" in failed.stderr, failed
    print(json.dumps(answer.choices()[0], ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[3])
