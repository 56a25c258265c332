"""Traffic that runs all the time: pings, streams, and transfers whose bytes are checked."""

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
# Seconds between two blocks of a transfer: 50 Mbit/s at most.
PAUSE = 0.01
STREAMS = 2


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
            time.sleep(PAUSE)
    except OSError:
        client.close()


def check(address):
    """Receives blocks over one connection, compares each byte, and prints the number of right blocks; ends with the
    connection or at the first wrong block."""
    with socket.create_connection((address, PORT)) as server:
        number = 0
        while True:
            data = b""
            while len(data) < BLOCK:
                piece = server.recv(BLOCK - len(data))
                if not piece:
                    raise ConnectionError("the peer has ended the connection")
                data += piece
            if data != block(number):
                raise ValueError(f"block {number} has wrong bytes")
            number += 1
            print(number, flush=True)


class Link:
    """An interface on both hosts, with its traffic."""

    def __init__(self, lab, name, subnet, device_of_a=None, has_streams=True):
        self.lab, self.name, self.has_streams = lab, name, has_streams
        # The devices with the addresses.
        self.device = {"a": device_of_a or name, "b": name}
        self.address = {"a": f"10.78.{subnet}.1", "b": f"10.78.{subnet}.2"}
        self.outputs = []

    def configure(self):
        for side in "ab":
            self.lab.wait(f"{self.name} of host {side}", lambda side=side: self.exists(side))
            # The interface is persistent, so addresses outlive the daemons.
            self.lab.ip("-n", self.lab.ns(side), "addr", "replace", f"{self.address[side]}/24", "dev", self.device[side])
            self.lab.ip("-n", self.lab.ns(side), "link", "set", self.device[side], "up")
        # Without the headers of IPv4 and ICMP.
        self.payload = int(self.lab.run("b", "cat", f"/sys/class/net/{self.name}/mtu")) - 28
        self.lab.wait(f"an answer over {self.name}", self.answers, 60)

    def exists(self, side):
        return self.device[side] in self.lab.run(side, "ls", "/sys/class/net").split()

    def answers(self):
        """Whether a full packet passes. A late answer counts, too: the streams fill the queues. After a change of the mode,
        the kernel knows a path MTU for some minutes, and fragments the packet."""
        ping = self.lab.command("a", "ping", "-q", "-Mwant", "-c1", "-i0.1", "-w1", "-s", self.payload, self.address["b"])
        return subprocess.run(ping, capture_output=True).returncode == 0

    def start_traffic(self):
        python = [sys.executable, "-B", os.path.abspath(__file__)]
        for side, other in ("ab", "ba"):
            checker = self.lab.start(side, *python, "check", self.address[other], keep=True)
            self.outputs.append(Output(checker))
        server, client = self.address["b"], self.address["a"]
        self.lab.start("a", "ping", "-q", "-i", "0.02", server, unread=True)
        self.lab.start("b", "ping", "-q", "-i", "0.02", "-s", "3000", client, unread=True)
        if not self.has_streams:
            return
        self.lab.start("b", "iperf3", "-s", "-B", server, keep=True, unread=True)
        self.lab.wait_listening("b", "tcp", 5201)
        streams = ["iperf3", "-c", server, "-t", "86400", "-b", "100M", "-P", STREAMS]
        self.lab.start("a", *streams, keep=True, unread=True)

    def blocks(self):
        """The blocks that have arrived whole, of each transfer."""
        return [output.last for output in self.outputs]

    def blocks_grew(self, before):
        return all(now > then for now, then in zip(self.blocks(), before, strict=True))

    def streams(self):
        """The bytes that have arrived over each connection to iperf3."""
        listed = self.lab.run("b", "ss", "-Htin", "src", f"{self.address['b']}:5201") if self.has_streams else ""
        # An indented line has the figures of the connection before.
        return dict(re.findall(r":(\d+)\s*\n\s.*bytes_received:(\d+)", listed))

    def streams_grew(self, before):
        now = self.streams()
        grown = [peer for peer, count in now.items() if int(count) > int(before.get(peer, 0))]
        return not self.has_streams or len(grown) >= STREAMS


class Output:
    """The last line of a process that prints numbers."""

    def __init__(self, process):
        self.last = 0
        threading.Thread(target=self.read, args=(process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            self.last = int(line)


if __name__ == "__main__":
    {"serve": serve, "check": lambda: check(sys.argv[2])}[sys.argv[1]]()
