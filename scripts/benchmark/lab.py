"""Two network namespaces joined by a veth, and the processes in them; all removed at the end."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

UNDERLAY = {"a": "10.77.0.1", "b": "10.77.0.2"}


class Failure(Exception):
    """A measurement that cannot be made, in a sentence."""


class Lab:
    def __init__(self, underlay_mtu):
        self.prefix = f"ibt{os.getpid()}"
        self.namespaces = []
        self.processes = []
        self.scratch = tempfile.TemporaryDirectory(prefix=f"{self.prefix}.")
        self.underlay_mtu = underlay_mtu
        self.has_daemons = False

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _build(self):
        for side in "ab":
            self.add(side)
        mtu = str(self.underlay_mtu)
        self.ip(
            *("link", "add", "name", "eth0", "netns", self.ns("a"), "mtu", mtu, "type", "veth"),
            *("peer", "name", "eth0", "netns", self.ns("b"), "mtu", mtu),
        )
        for side in "ab":
            self.ip("-n", self.ns(side), "addr", "add", f"{UNDERLAY[side]}/24", "dev", "eth0")
            self.ip("-n", self.ns(side), "link", "set", "eth0", "up")

    def add(self, side):
        """Another namespace; gives its name."""
        self.ip("netns", "add", self.ns(side))
        self.namespaces.append(self.ns(side))
        self.ip("-n", self.ns(side), "link", "set", "lo", "up")
        return self.ns(side)

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL)
        self.scratch.cleanup()

    def ns(self, side):
        return f"{self.prefix}-{side}"

    def path(self, name):
        return Path(self.scratch.name) / name

    def ip(self, *arguments):
        done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")

    def command(self, side, *arguments):
        return ["ip", "netns", "exec", self.ns(side), *map(str, arguments)]

    def run(self, side, *arguments, timeout=120):
        """Output of a command on one host."""
        try:
            done = subprocess.run(
                self.command(side, *arguments), capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired as e:
            raise Failure(f"{' '.join(map(str, arguments))} did not end within {timeout} s") from e
        if done.returncode:
            words = " ".join(map(str, arguments))
            raise Failure(f"{words}: status {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def start(self, side, *arguments, keep=False):
        """A process on one host (side None: on neither). With `keep` it must outlive the lab."""
        log = self.path(f"{len(self.processes)}.log")
        command = self.command(side, *arguments) if side else [str(a) for a in arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(log, "w"), text=True)
        process.log = log
        process.words = " ".join(command)
        process.keep = keep
        self.processes.append(process)
        return process

    def check_alive(self):
        for process in self.processes:
            if process.keep and process.poll() is not None:
                raise Failure(
                    f"{process.words} ended with {process.returncode}: {process.log.read_text().strip()}"
                )

    def finish(self, process, timeout):
        """Output of a started process that ends by itself."""
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as e:
            raise Failure(f"{process.words} did not end within {timeout:.0f} s") from e
        self.processes.remove(process)
        if process.returncode:
            raise Failure(f"{process.words}: status {process.returncode}: {process.log.read_text().strip()}")
        return output

    def wait(self, what, condition, seconds=15):
        end = time.monotonic() + seconds
        while not condition():
            self.check_alive()
            if time.monotonic() > end:
                raise Failure(f"waited in vain for {what}")
            time.sleep(0.05)

    def wait_listening(self, side, protocol, port):
        flags = {"tcp": "-Hltn", "udp": "-Hlun"}[protocol]
        self.wait(
            f"{protocol} port {port}", lambda: self.run(side, "ss", flags, "sport", "=", f":{port}").strip()
        )
