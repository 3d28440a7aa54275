"""nginx in front of three replicas, by deploy/nginx.conf.

    nginx_test.py PROGRAM CACHE [unittest's arguments]    (live/environment.py)

nginx is the one of PATH, or else Debian's package, unpacked in CACHE and not
installed: nothing is started but by this test.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.asking import Exchange
from live.replica import free_port, wait_until
from routers.cluster import (LONG, FileLaws, RouterLaws, RouterTest, deployed,
                             with_ports)

# It runs until its client leaves, or for many seconds.
HELD = {**LONG, "num_beams": 32}


def find_nginx() -> str:
    path = os.environ["PATH"] + ":/usr/sbin"
    found = shutil.which("nginx", path=path)
    if found:
        return found
    folder = environment.cache() / "nginx"
    unpacked = folder / "usr/sbin/nginx"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.exists() and shutil.which("apt-get"):
            subprocess.run(["apt-get", "-q", "download", "nginx"], cwd=folder,
                           capture_output=True, check=False)
            for package in folder.glob("nginx_*.deb"):
                subprocess.run(["dpkg", "-x", package, folder], check=True)
    if not unpacked.exists():
        environment.skip("no nginx here, and no package of it to be had")
    return str(unpacked)


class NginxTest(FileLaws, RouterLaws, RouterTest):
    def start_router(self) -> str:
        port = free_port()
        ports = [replica.port for replica in self.replicas]
        text = with_ports(deployed("nginx.conf"), {
            8001: ports[0], 8002: ports[1], 8003: ports[2], 8080: port})
        # Its own folders, where the system's are not ours.
        folders = "".join(
            f"  {name}_temp_path {self.folder}/{name};\n" for name in
            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = text.replace("http {\n", "http {\n" + folders)
        config = self.folder / "nginx.conf"
        config.write_text(f"daemon off;\npid {self.folder}/pid;\n{text}")
        self.start_process(find_nginx(), "-c", config, "-p", self.folder, "-e",
                           "stderr")
        url = f"http://127.0.0.1:{port}"
        self.wait_for_router(url)
        return url

    def test_the_replica_with_fewest_requests_is_taken(self) -> None:
        held: list[Exchange] = []

        def hold() -> None:
            held.append(Exchange(self.url, HELD))
            self.addCleanup(held[-1].leave)
            next(held[-1].events())

        # None ends by itself: nginx may count an answer as unfinished for a
        # moment after its client has all of it.
        places = [self.served(hold).index(1) for _ in range(3)]
        self.assertEqual(sorted(places), [0, 1, 2])
        # Taking turns would now take the first.
        for exchange, place in zip(held[1:], places[1:]):
            exchange.leave()
            wait_until("its replica is idle", lambda place=place:
                       not self.replicas[place].num_running())
        again = [self.served(hold).index(1) for _ in range(2)]
        self.assertEqual(sorted(again), sorted(places[1:]))



if __name__ == "__main__":
    find_nginx()
    environment.main()
