"""A pytest plugin for the tests of `swh.objstorage`, which get what they ask for from a cluster.

Those that start moto's S3 server get the gateway at GATEWAY (HOST:PORT) instead.

The server's port, which the test may choose, is forwarded. The users that the tests expect have to exist there. Images
that a test leaves mapped are unmapped before its pools are cleaned: one test maps its image three times and unmaps it
twice. The fixtures of `swh.objstorage` come along, as in its source tree.
"""
import os
import socket
import subprocess
import threading

import moto.server
import pytest


def pytest_configure(config):
    # After the plugins of `swh.core`, one of whose fixtures it replaces.
    config.pluginmanager.import_plugin('swh.objstorage.pytest_plugin')


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item):
    if any(name.endswith('-rbd') for name in item.funcargs.get('pool_names', [])):
        unmap = "rbd device list | awk '$2 ~ /winery/ {print $NF}' | xargs -r -n 1 rbd device unmap -o force"
        subprocess.run(['sudo', 'sh', '-c', unmap], check=True)


def copy(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


class Forwarder:
    """Has the methods of `ThreadedMotoServer` that the tests call."""

    def __init__(self, ip_address='127.0.0.1', port=5000, **_):
        self.listener = socket.create_server((ip_address, port))
        host, gateway_port = os.environ['GATEWAY'].split(':')
        self.gateway = (host, int(gateway_port))

    def start(self):
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            gateway = socket.create_connection(self.gateway)
            threading.Thread(target=copy, args=(client, gateway), daemon=True).start()
            threading.Thread(target=copy, args=(gateway, client), daemon=True).start()

    def get_host_and_port(self):
        return self.listener.getsockname()[:2]

    def stop(self):
        self.listener.close()


moto.server.ThreadedMotoServer = Forwarder
