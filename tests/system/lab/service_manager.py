"""A small service manager for tests: keeps a daemon running, and stores its descriptors.

    service_manager.py NOTIFY_SOCKET STORE_MAX DELAY COMMAND...

Starts COMMAND with NOTIFY_SOCKET in its environment, and again DELAY seconds after its end, like
systemd with Restart=always. Passes stored descriptors (sd_notify(3): FDSTORE=1 with FDNAME, at most
STORE_MAX) to the next COMMAND (sd_listen_fds(3): LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES). Prints a
line for each event. The descriptors close when the manager is killed.

With LEFT=LABEL=INTERFACE=QUEUES:... in the environment, the store starts with the queues of these TAPs, as if
left by a former daemon; COMMAND starts once the file GO exists.
"""

import array
import ctypes
import fcntl
import os
import select
import socket
import struct
import sys
import time

KCMP = 312  # x86-64; other architectures: no comparison of descriptors
KCMP_FILE = 0

TUNSETIFF, TUNSETVNETHDRSZ = 0x400454CA, 0x400454D8
VNET_HEADER = 12
IFF_TAP, IFF_MULTI_QUEUE, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x0100, 0x1000, 0x4000


def say(*words):
    print(*words, flush=True)


def same_file(one, other):
    """Like systemd: a stored descriptor is not stored again (kcmp(2))."""
    if os.uname().machine != "x86_64":
        return False
    pid = os.getpid()
    return ctypes.CDLL(None).syscall(KCMP, pid, pid, KCMP_FILE, one, other) == 0


class Manager:
    def __init__(self, path, store_max):
        self.store = []  # (name, descriptor)
        self.store_max = store_max
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(path)
        self.path = path

    def leave(self, label, interface, queues):
        """Stores the queues of a TAP, as if left by a former daemon."""
        flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (IFF_MULTI_QUEUE if queues > 1 else 0)
        for _ in range(queues):
            queue = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(queue, TUNSETIFF, struct.pack("16sH22x", interface.encode(), flags))
            fcntl.ioctl(queue, TUNSETVNETHDRSZ, struct.pack("i", VNET_HEADER))
            self.store.append((label, queue))
        say("left", label, interface)

    def start(self, command):
        pid = os.fork()
        if pid:
            return pid
        # Not among the numbers from 3.
        high = [os.dup2(fd, 500 + n, inheritable=False) for n, (_, fd) in enumerate(self.store)]
        for number, fd in enumerate(high):
            os.dup2(fd, 3 + number, inheritable=True)
        if self.store:
            os.environ["LISTEN_FDS"] = str(len(self.store))
            os.environ["LISTEN_PID"] = str(os.getpid())
            os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in self.store)
        os.environ["NOTIFY_SOCKET"] = self.path
        # The tests count the notifications; the manager does not end the daemon.
        os.environ["WATCHDOG_USEC"] = "1000000"
        os.execvp(command[0], command)

    def notification(self):
        """Processes one notification."""
        size = array.array("i").itemsize
        data, control, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(64 * size))
        fds = array.array("i")
        for level, kind, payload in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload[: len(payload) - len(payload) % size])
        fields = dict(line.split("=", 1) for line in data.decode().splitlines() if "=" in line)
        name = fields.get("FDNAME", "stored")
        if fields.get("FDSTORE") == "1":
            self.keep(name, fds)
        elif fields.get("FDSTOREREMOVE") == "1":
            self.remove(name)
        if fields.get("RELOADING") == "1":
            say("reloading")
        if fields.get("READY") == "1":
            say("ready")
        if fields.get("WATCHDOG") == "1":
            say("watchdog")

    def keep(self, name, fds):
        for fd in fds:
            known = any(same_file(fd, kept) for _, kept in self.store)
            if known or len(self.store) >= self.store_max:
                os.close(fd)
            else:
                # Like systemd's: the daemon gets copies of these descriptors, and no others.
                os.set_inheritable(fd, False)
                self.store.append((name, fd))
        say("stored", name, sum(1 for kept, _ in self.store if kept == name))

    def remove(self, name):
        for kept, fd in self.store:
            if kept == name:
                os.close(fd)
        self.store = [(kept, fd) for kept, fd in self.store if kept != name]
        say("removed", name)

    def serve(self, command, delay):
        while True:
            pid = self.start(command)
            say("started", pid)
            ended = os.pidfd_open(pid)
            while True:
                readable, _, _ = select.select([self.notify, ended], [], [])
                if self.notify in readable:
                    self.notification()
                elif ended in readable:
                    break
            os.close(ended)
            _, status = os.waitpid(pid, 0)
            say("ended", pid, status)
            time.sleep(delay)


if __name__ == "__main__":
    path, store_max, delay, *command = sys.argv[1:]
    manager = Manager(path, int(store_max))
    for left in filter(None, os.environ.pop("LEFT", "").split(":")):
        label, interface, queues = left.split("=")
        manager.leave(label, interface, int(queues))
    go = os.environ.pop("GO", None)
    while go and not os.path.exists(go):
        time.sleep(0.01)
    manager.serve(command, float(delay))
