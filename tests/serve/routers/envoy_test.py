"""Envoy in front of three replicas, by deploy/envoy.yaml.

    envoy_test.py PROGRAM CACHE [unittest's arguments]    (live/environment.py)
"""

import http.client
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.asking import ask
from live.replica import free_port, wait_until
from routers.cluster import (FileLaws, RouterLaws, RouterTest, bodies,
                             deployed, with_ports)

SHORT = {"prompt": "It rains.", "max_tokens": 2}


class EnvoyTest(FileLaws, RouterLaws, RouterTest):
    FLAGS = ("--report-load",)

    def start_router(self) -> str:
        clients, picker, admin = (free_port() for _ in range(3))
        self.picker = f"http://127.0.0.1:{picker}"
        self.admin = f"127.0.0.1:{admin}"
        ports = [replica.port for replica in self.replicas]
        config = self.folder / "envoy.yaml"
        config.write_text(with_ports(deployed("envoy.yaml"), {
            8001: ports[0], 8002: ports[1], 8003: ports[2], 8080: clients,
            8081: picker, 9901: admin}))
        self.start_process(environment.environment() / "bin/envoy", "-c", config,
                           "--use-dynamic-base-id", "--concurrency", "1",
                           "-l", "warn")
        url = f"http://127.0.0.1:{clients}"
        self.wait_for_router(url)
        return url

    def test_an_endpoint_picker_chooses_the_replica(self) -> None:
        for index, replica in enumerate(self.replicas):
            headers = {"x-gateway-destination-endpoint": replica.address}
            counts = self.served(lambda: [
                self.assertTrue(ask(self.picker, body, headers).is_good)
                for body in bodies()[:8]])
            self.assertEqual(counts[index], 8)
            self.assertEqual(sum(counts), 8)

    def test_clients_do_not_choose_the_replica(self) -> None:
        headers = {"x-gateway-destination-endpoint": self.replicas[0].address}
        counts = self.served(lambda: [
            self.assertTrue(ask(self.url, SHORT, headers).is_good)
            for _ in range(12)])
        self.assertLess(counts[0], 12)

    def test_a_busy_replica_gets_fewer_requests(self) -> None:
        def sent() -> list[int]:
            """Requests that Envoy has sent to each replica."""
            connection = http.client.HTTPConnection(self.admin)
            connection.request("GET", "/clusters")
            text = connection.getresponse().read().decode()
            connection.close()
            return [int(re.search(
                rf"replicas::{replica.address}::rq_total::(\d+)", text)[1])
                for replica in self.replicas]

        def shifts() -> bool:
            before = sent()
            for _ in range(20):
                ask(self.url, SHORT)
            counts = [now - then for now, then in zip(sent(), before)]
            return 3 * counts[0] < min(counts[1:])

        # Weights are known once every replica has reported, and are set anew
        # every second.
        with self.kept_busy(self.replicas[0]):
            wait_until("the busy replica gets a third of another", shifts)


if __name__ == "__main__":
    environment.restart_with_packages()
    environment.main()
