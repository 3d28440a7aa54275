"""vllm-router in front of three replicas, by deploy/vllm_router.sh.

    vllm_router_test.py PROGRAM CACHE [unittest's arguments]
                                                         (live/environment.py)
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.asking import ask
from live.replica import free_port, wait_until
from routers.cluster import RouterLaws, RouterTest, deployed, with_ports

SHORT = {"prompt": "It rains.", "max_tokens": 2}


class VllmRouterTest(RouterTest):
    POLICY = "power_of_two"

    def start_router(self) -> str:
        port, metrics = free_port(), free_port()
        ports = [replica.port for replica in self.replicas]
        script = self.folder / "vllm_router.sh"
        script.write_text(with_ports(deployed("vllm_router.sh"), {
            8001: ports[0], 8002: ports[1], 8003: ports[2], 8080: port}))
        binaries = environment.environment() / "bin"
        self.start_process(
            "sh", script, "--prometheus-port", metrics,
            env={**os.environ, "POLICY": self.POLICY,
                 "PATH": f"{binaries}:{os.environ['PATH']}"})
        url = f"http://127.0.0.1:{port}"
        self.wait_for_router(url)
        return url


class PowerOfTwoTest(RouterLaws, VllmRouterTest):
    def test_a_busy_replica_gets_hardly_a_request(self) -> None:
        def shifts() -> bool:
            counts = self.served(lambda: [ask(self.url, SHORT)
                                          for _ in range(20)])
            return sum(counts[1:]) >= 18

        # The router asks for loads now and then. In turn the busy one would get
        # every third.
        with self.kept_busy(self.replicas[0]):
            wait_until("the busy replica gets a tenth at most", shifts)


class ConsistentHashTest(VllmRouterTest):
    POLICY = "consistent_hash"

    def test_a_session_stays_with_its_replica(self) -> None:
        homes = set()
        for session in range(12):
            counts = self.served(lambda: [
                ask(self.url, SHORT, {"X-Session-ID": f"session-{session}"})
                for _ in range(4)])
            self.assertEqual(sorted(counts), [0, 0, 4])
            homes.add(counts.index(4))
        self.assertGreater(len(homes), 1)


if __name__ == "__main__":
    environment.restart_with_packages()
    environment.main()
