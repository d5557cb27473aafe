"""Streams over TCP from node0 to node1 of a lab for 5 s (`one`), or both ways at once (`both`); each receiver prints the payload
that it got after the first second. `lockstep lab run NAME --each --hosts 2 -- python3 benches/lab_stream.py one`."""

import socket
import sys
import threading
import time

PORT = 5000
BLOCK = 1 << 16


def receive():
    with socket.create_server(("", PORT)) as server:
        stream, _ = server.accept()
        began, since, last, count = time.monotonic(), None, None, 0
        while data := stream.recv(4 * BLOCK):
            last = time.monotonic()
            if since is not None:
                count += len(data)
            elif last > began + 1:
                since = last
    print(f"received {count * 8e-6 / (last - since):.1f} Mbit/s", flush=True)


def send(peer):
    for _ in range(100):
        try:
            stream = socket.create_connection((peer, PORT))
            break
        except OSError:  # it does not listen yet
            time.sleep(0.1)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        stream.sendall(bytes(BLOCK))
    stream.close()


def main():
    me, both = socket.gethostname(), sys.argv[1] == "both"
    work = []
    if me == "node1" or both:
        work.append(threading.Thread(target=receive))
    if me == "node0" or both:
        work.append(threading.Thread(target=send, args=("node1" if me == "node0" else "node0",)))
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


main()
