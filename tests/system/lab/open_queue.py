"""Opens a queue of a TAP that has several queues: open_queue.py INTERFACE UID SECONDS

The user with the number UID has no rights unless it is 0. Prints "opened", or the reason of a refusal. Holds the queue
for SECONDS.
"""

import fcntl
import os
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_MULTI_QUEUE, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x0100, 0x1000, 0x4000

interface, user, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
# Before the change of the user: tests may run where only root may open the device node.
device = os.open("/dev/net/tun", os.O_RDWR)
os.setresuid(user, user, user)
flags = IFF_TAP | IFF_MULTI_QUEUE | IFF_NO_PI | IFF_VNET_HDR
try:
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", interface.encode(), flags))
    print("opened")
    time.sleep(seconds)
except OSError as error:
    print(error.strerror)
