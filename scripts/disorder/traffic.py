"""Traffic that runs all the time: pings, a stream, and transfers whose bytes are checked."""

import os
import random
import re
import socket
import subprocess
import sys
import threading
import time

PORT = 7007
BLOCK = 1 << 16


def block(number):
    """The bytes of a block of a transfer."""
    return random.Random(number).randbytes(BLOCK)


def serve():
    """Sends blocks without end to everybody who connects."""
    server = socket.create_server(("0.0.0.0", PORT))
    while True:
        client, _ = server.accept()
        threading.Thread(target=send_blocks, args=(client,), daemon=True).start()


def send_blocks(client):
    number = 0
    try:
        while True:
            client.sendall(block(number))
            number += 1
    except OSError:
        client.close()


def check(address):
    """Receives blocks, compares each byte, and prints the number of right blocks; ends at the first wrong one."""
    right = 0
    while True:
        try:
            with socket.create_connection((address, PORT), timeout=5) as server:
                number = 0
                while True:
                    data = b""
                    while len(data) < BLOCK:
                        piece = server.recv(BLOCK - len(data))
                        if not piece:
                            raise ConnectionError
                        data += piece
                    if data != block(number):
                        print(f"wrong block {number}", flush=True)
                        return
                    number += 1
                    right += 1
                    print(right, flush=True)
        except OSError:
            time.sleep(0.1)


class Link:
    """An interface on both hosts, with its traffic."""

    def __init__(self, lab, name, subnet):
        self.lab, self.name = lab, name
        self.address = {"a": f"10.78.{subnet}.1", "b": f"10.78.{subnet}.2"}
        self.outputs = []

    def configure(self):
        for side in "ab":
            self.lab.wait(f"{self.name} of host {side}", lambda side=side: self.exists(side))
            # The interface is persistent, so addresses outlive the daemons.
            self.lab.ip("-n", self.lab.ns(side), "addr", "replace", f"{self.address[side]}/24", "dev", self.name)
            self.lab.ip("-n", self.lab.ns(side), "link", "set", self.name, "up")
        self.lab.wait(f"an answer over {self.name}", self.answers, 60)

    def exists(self, side):
        return self.name in self.lab.run(side, "ls", "/sys/class/net").split()

    def answers(self):
        ping = self.lab.command("a", "ping", "-q", "-c1", "-W0.3", self.address["b"])
        return subprocess.run(ping, capture_output=True).returncode == 0

    def start_traffic(self):
        python = [sys.executable, "-B", os.path.abspath(__file__)]
        checker = self.lab.start("a", *python, "check", self.address["b"])
        self.outputs.append(Output(checker))
        server, client = self.address["b"], self.address["a"]
        self.lab.start("b", "iperf3", "-s", "-B", server, keep=True, unread=True)
        self.lab.wait_listening("b", "tcp", 5201)
        # A fault that lasts too long for TCP ends the streams.
        streams = f"while :; do setpriv --pdeathsig KILL iperf3 -c {server} -t 86400 -b 100M -P 2; sleep 1; done"
        self.lab.start("a", "sh", "-c", streams, keep=True, unread=True)
        self.lab.start("a", "ping", "-q", "-i", "0.02", server, unread=True)
        self.lab.start("b", "ping", "-q", "-i", "0.02", "-s", "3000", client, unread=True)

    def right_blocks(self):
        return sum(output.number() for output in self.outputs)


class Output:
    """The last line of a process that prints numbers."""

    def __init__(self, process):
        self.last = "0"
        threading.Thread(target=self.read, args=(process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            self.last = line.strip()

    def number(self):
        if not re.fullmatch(r"\d+", self.last):
            raise AssertionError(f"a transfer delivered wrong bytes: {self.last}")
        return int(self.last)


if __name__ == "__main__":
    {"serve": serve, "check": lambda: check(sys.argv[2])}[sys.argv[1]]()
