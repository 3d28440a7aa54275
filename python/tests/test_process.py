"""The ends of processes: exits in every state, forks, signals. Each runs in a
process of its own, and none may hang, abort or print of its death."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import MODEL

PRELUDE = f"""
import asyncio, os, sys, threading, time
import espalier
llm = espalier.LLM({str(MODEL)!r}, num_threads=1)
long = dict(num_beams=8, min_new_tokens=200)
"""


def start(code):
    return subprocess.Popen(
        # Python 3.12 warns of every fork beside threads.
        [sys.executable, "-W", "ignore", "-c", PRELUDE + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


EXITS = {
    "at once": "",
    "after an answer": "llm.generate('Hello')",
    "with a stream": "s = iter(llm.stream('Hello', **long)); next(s)",
    "closed": "llm.close()",
    "deleted": "del llm",
    "sys.exit": "sys.exit(0)",
    "with a daemon that generates": """
        def run():
            llm.generate(['Hello'] * 20, **long)
        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.2)
    """,
    "with a daemon that streams": """
        def run():
            for _ in llm.stream('Hello', **long): pass
        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.2)
    """,
    "with a task that runs": """
        async def main():
            asyncio.ensure_future(llm.agenerate('Hello', **long))
            await asyncio.sleep(0.05)
        asyncio.run(main())
    """,
    "in a loop that runs": """
        async def main():
            asyncio.ensure_future(llm.agenerate('Hello', **long))
            await asyncio.sleep(0.05)
            sys.exit(0)
        asyncio.run(main())
    """,
    "with a cycle": "llm.me = llm",
    "with a handler that calls": """
        import atexit
        atexit.register(lambda: list(s))
        s = llm.stream('Hello', num_beams=2)
    """,
    "two engines": f"other = espalier.LLM({str(MODEL)!r}); other.generate('Hello')",
}


@pytest.mark.parametrize("state", EXITS)
def test_exit(state):
    process = start(EXITS[state])
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")


def test_ctrl_c_ends_a_call_and_its_requests():
    # A shell's jobs in the background inherit that it is ignored.
    process = start("""
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print('ready', flush=True)
        try:
            llm.generate(['Hello'] * 40, **long)
        except KeyboardInterrupt:
            for _ in range(200):
                if llm.stats()['num_open'] == 0: break
                time.sleep(0.01)
            print('ended', llm.stats()['num_open'])
            print(llm.generate('How old are you?')[0].outputs[0].text != '')
        """)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (stdout, stderr) == ("ended 0\nTrue\n", "")


def test_ctrl_c_ends_a_wait_for_a_stream():
    process = start("""
        import signal
        from espalier._espalier import Requests
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
        begin = time.monotonic()
        try:
            Requests().wait(20)  # nothing comes
        except KeyboardInterrupt:
            print(time.monotonic() - begin < 10)
        """)
    assert process.communicate(timeout=60) == ("True\n", "")


def test_a_fork_raises_instead_of_hanging():
    process = start("""
        child = os.fork()
        if child == 0:
            try:
                llm.generate('Hello')
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(len(llm.generate('Hello')))
        """)
    stdout, stderr = process.communicate(timeout=60)
    assert "before a fork" in stdout and stdout.endswith("1\n") and stderr == ""


def test_a_stream_of_the_parent_raises_in_a_child():
    process = start("""
        s = llm.stream('Hello', num_beams=2)
        if os.fork() == 0:
            try:
                list(s)
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
        print(len(list(s)) > 0)
        """)
    stdout, stderr = process.communicate(timeout=60)
    assert "before a fork" in stdout and stdout.endswith("True\n") and stderr == ""


@pytest.mark.parametrize(
    "end", ["", "sys.exit(0)", "llm.close()", "del llm", "del s", "s.close()"]
)
def test_a_forked_child_ends(end):
    process = start(f"""
        s = llm.stream('Hello', **long)
        if os.fork() == 0:
            {end or 'pass'}
            sys.exit(0)
        os.wait()
        print(len(llm.generate('Hello')))
        s.close()
        """)
    stdout, stderr = process.communicate(timeout=60)
    assert (stdout, stderr, process.returncode) == ("1\n", "", 0)


def test_a_forked_child_has_an_engine_of_its_own():
    process = start(f"""
        if os.fork() == 0:
            own = espalier.LLM({str(MODEL)!r}, num_threads=1)
            print(len(own.generate('Hello')), flush=True)
            sys.exit(0)
        os.wait()
        """)
    stdout, stderr = process.communicate(timeout=60)
    assert (stdout, stderr, process.returncode) == ("1\n", "", 0)


def test_spawned_processes_have_engines_of_their_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(f"""
            import multiprocessing, espalier
            def work(i):
                llm = espalier.LLM({str(MODEL)!r}, num_threads=1)
                return llm.generate("How old are you?")[0].outputs[0].text
            if __name__ == "__main__":
                for method in ("spawn", "fork"):
                    with multiprocessing.get_context(method).Pool(2) as pool:
                        assert len(set(pool.map(work, range(2)))) == 1
            """))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
