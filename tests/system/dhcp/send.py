#!/usr/bin/env python3
"""Sends raw Ethernet frames. usage: send.py INTERFACE FRAME-HEX..."""

import socket
import sys

link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((sys.argv[1], 0))
for frame in sys.argv[2:]:
    link.send(bytes.fromhex(frame))
