"""Sends one request to the control socket of the subnet administrator, prints the answer.

usage: control.py SOCKET JSON
"""

import json
import socket
import sys


def ask(path, request):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(connection.makefile().readline())


if __name__ == "__main__":
    answer = ask(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps(answer, indent=1))
    sys.exit("error" in answer)
