"""A TCP proxy between a program under test and one server, that can be a bad network.

Modes: `pass`; `cut` (connections are reset, new ones too); `latency` (every chunk arrives late); `drop_up`, `drop_down` (half-open:
what is sent in one direction vanishes; since a byte stream with a hole is none, what lost bytes is reset when the mode
ends); `hold` (a black hole: everything is accepted and nothing goes on, no FIN and no RST; when the mode ends, what was sent meanwhile
arrives after all, also from a peer that has given up).

A filter sees what goes through a connection: up(data) returns what goes on to the server and what goes back to the client, down(data)
what goes on to the client. kafka_answers.py is one.

One thread serves all connections of a proxy. set_mode() may be called from any thread and works within TURN_S.
"""

import collections
import contextlib
import select
import socket
import struct
import threading
import time

CHUNK_BYTES = 256 * 1024
QUEUE_BYTES_MAX = 1024 * 1024
TURN_S = 0.05
MODES = ("pass", "cut", "latency", "drop_up", "drop_down", "hold")


class _Flow:
    """One direction of a connection."""

    def __init__(self, source, target, dropped_by):
        self.source, self.target, self.dropped_by = source, target, dropped_by
        self.queue = collections.deque()  # (when it may go on, bytes)
        self.queued_bytes = 0
        self.ended = self.closed = False

    def due(self, now):
        return bool(self.queue) and self.queue[0][0] <= now


class _Connection:
    def __init__(self, client, server, filtered):
        self.client, self.server, self.filtered = client, server, filtered
        self.flows = (_Flow(client, server, "drop_up"), _Flow(server, client, "drop_down"))
        self.has_hole = False
        self.held = False

    def reset(self):
        for end in (self.client, self.server):
            _reset(end)


def _reset(end):
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


class TcpProxy:
    def __init__(self, name, target):
        self.name, self.target = name, target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.setblocking(False)
        self.make_filter = None  # for connections from then on
        self.port = self._listener.getsockname()[1]
        self._wanted = ("pass", 0.0)
        self._mode, self._delay_s = self._wanted
        self._connections = []
        self._waiting = []  # accepted in `hold`, not yet connected to the server
        self._closing = False
        self.accepted = 0
        self._thread = threading.Thread(target=self._serve, name=f"proxy {name}", daemon=True)
        self._thread.start()

    def set_mode(self, mode, delay_s=0.0):
        if mode not in MODES:
            raise ValueError(mode)
        self._wanted = (mode, delay_s)

    def hold_those_of_now(self):
        """For good, as a firewall does that forgot them. Later ones pass."""
        for connection in list(self._connections):
            connection.held = True

    def close(self):
        self._closing = True
        self._thread.join()

    def _serve(self):
        while not self._closing:
            if self._wanted != (self._mode, self._delay_s):
                self._change_mode()
            self._turn()
        for connection in self._connections:
            connection.reset()
        for client in self._waiting:
            _reset(client)
        self._listener.close()

    def _change_mode(self):
        before = self._mode
        self._mode, self._delay_s = self._wanted
        for connection in list(self._connections):
            if self._mode == "cut" or before in ("drop_up", "drop_down") and connection.has_hole:
                self._forget(connection)
        waiting, self._waiting = self._waiting, []
        for client in waiting:
            self._admit(client)

    def _turn(self):
        now = time.monotonic()
        poller, ready, masks = select.poll(), collections.defaultdict(list), collections.Counter()
        timeout = TURN_S

        def watch(end, events, what):
            number = end.fileno()
            ready[number].append((events, what))
            masks[number] |= events
            poller.register(number, masks[number])

        watch(self._listener, select.POLLIN, None)
        for connection in self._connections if self._mode != "hold" else ():
            for flow in connection.flows if not connection.held else ():
                if not flow.ended and flow.queued_bytes < QUEUE_BYTES_MAX:
                    watch(flow.source, select.POLLIN, (connection, flow, self._receive))
                if flow.due(now):
                    watch(flow.target, select.POLLOUT, (connection, flow, self._send))
                elif flow.queue:
                    timeout = min(timeout, flow.queue[0][0] - now)
        for number, happened in poller.poll(max(0.0, timeout) * 1000):
            for events, what in ready[number]:
                if not happened & (events | select.POLLHUP | select.POLLERR):
                    continue
                if what is None:
                    self._accept()
                elif what[0] in self._connections:
                    self._guarded(*what)

    def _guarded(self, connection, flow, step):
        try:
            step(connection, flow)
            if all(each.closed for each in connection.flows):
                self._forget(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._forget(connection)

    def _forget(self, connection):
        self._connections.remove(connection)
        connection.reset()

    def _accept(self):
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            self.accepted += 1
            self._admit(client)

    def _admit(self, client):
        if self._mode == "hold":
            self._waiting.append(client)
            return
        try:
            if self._mode == "cut":
                raise ConnectionRefusedError
            server = socket.create_connection(self.target, timeout=2)
        except OSError:
            _reset(client)
            return
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.append(_Connection(client, server, self.make_filter and self.make_filter()))

    def _receive(self, connection, flow):
        data = flow.source.recv(CHUNK_BYTES)
        if self._mode == flow.dropped_by:
            connection.has_hole = True
            if not data:
                flow.ended = flow.closed = True
            return
        flow.ended = not data
        forward, back = data, b""
        if data and connection.filtered is not None:
            upwards = flow is connection.flows[0]
            forward, back = connection.filtered.up(data) if upwards else (connection.filtered.down(data), b"")
        if forward or not data:  # nothing is the end
            self._enqueue(flow, forward)
        if back and self._mode == connection.flows[1].dropped_by:
            connection.has_hole = True
        elif back:
            self._enqueue(connection.flows[1], back)
            with contextlib.suppress(BlockingIOError):
                self._send(connection, connection.flows[1])
        self._send(connection, flow)

    def _enqueue(self, flow, data):
        flow.queue.append((time.monotonic() + self._delay_s, data))
        flow.queued_bytes += len(data)

    def _send(self, _, flow):
        while flow.due(time.monotonic()):
            when, data = flow.queue[0]
            if not data:
                flow.queue.popleft()
                flow.closed = True
                flow.target.shutdown(socket.SHUT_WR)
                return
            sent = flow.target.send(data)
            flow.queued_bytes -= sent
            if sent == len(data):
                flow.queue.popleft()
            else:
                flow.queue[0] = (when, data[sent:])
