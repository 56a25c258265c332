"""Sends Ethernet frames: frames.py INTERFACE FRAMES_PER_SECOND < FILE

Each frame in the file follows its length, a big-endian 16-bit number. A sender that had no processor does not
catch up: a burst of what is late would fill the queue of the interface, which the rate does not.
"""

import socket
import struct
import sys
import time

# Resolution of sleeping, in seconds: frames within that time are sent in one burst.
GRAIN = 0.003

# What a sender catches up, in seconds.
LATE = 0.01


def frames(data):
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from(">H", data, at)
        yield data[at + 2 : at + 2 + length]
        at += 2 + length


def main():
    interface, rate = sys.argv[1], float(sys.argv[2])
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind((interface, 0))
    burst = max(1, int(rate * GRAIN))
    due = time.monotonic()
    for number, frame in enumerate(frames(sys.stdin.buffer.read())):
        if number % burst == 0:
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - LATE) + burst / rate
        try:
            link.send(frame)
        except OSError as error:
            # A full queue: the network loses frames in this way.
            if error.errno != 105:
                raise


main()
