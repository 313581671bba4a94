"""Asks a container's gRPC health service, as a kubelet does."""

import os
import threading
import time

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
try:
    import grpc
except ImportError:
    grpc = None

SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}
METHOD = "/grpc.health.v1.Health/Check"


def missing():
    return "python3-grpcio is not installed: probes need it" if grpc is None else None


def check(address, port, service, timeout):
    """Returns None if the service is SERVING, else why not."""
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"{address}:{port}", options) as channel:
        call = channel.unary_unary(METHOD, lambda message: message, lambda message: message)
        try:
            answer = call(request, timeout=timeout)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return None if answer == SERVING else f"answered {answer!r}, not SERVING"


class Prober(threading.Thread):
    """Runs the probes of one container. Liveness and readiness wait for the startup probe.

    `on_ready(bool)` follows readiness; `on_dead(reason)` is called once, when a startup or liveness
    probe has failed as often as the manifest allows.
    """

    def __init__(self, container, address, on_ready, on_dead):
        super().__init__(daemon=True)
        self._probes = {kind: container[kind + "Probe"] for kind in
                        ("startup", "liveness", "readiness") if kind + "Probe" in container}
        self._address = address
        self._on_ready = on_ready
        self._on_dead = on_dead
        self._ended = threading.Event()

    def stop(self):
        self._ended.set()

    def run(self):
        started = time.monotonic()
        if "startup" in self._probes and not self._wait_for_start(started):
            return
        if "readiness" not in self._probes:
            self._on_ready(True)
        states = {kind: {"due": started + probe.get("initialDelaySeconds", 0), "good": 0, "bad": 0}
                  for kind, probe in self._probes.items() if kind != "startup"}
        while states and not self._ended.wait(0.05):
            for kind, state in states.items():
                if time.monotonic() < state["due"]:
                    continue
                state["due"] = time.monotonic() + self._probes[kind].get("periodSeconds", 10)
                if not self._once(kind, state):
                    return

    def _wait_for_start(self, started):
        probe = self._probes["startup"]
        state = {"good": 0, "bad": 0}
        self._ended.wait(probe.get("initialDelaySeconds", 0))
        while not self._ended.is_set():
            if not self._once("startup", state):
                return False
            if state["good"]:
                return True
            self._ended.wait(probe.get("periodSeconds", 10))
        return False

    def _once(self, kind, state):
        """Runs a probe once. Returns False if the container is to be killed, or has ended."""
        probe = self._probes[kind]
        why = check(self._address, probe["grpc"]["port"], probe["grpc"].get("service", ""),
                    probe.get("timeoutSeconds", 1))
        if self._ended.is_set():
            return False
        if why is None:
            state["good"], state["bad"] = state["good"] + 1, 0
        else:
            state["good"], state["bad"] = 0, state["bad"] + 1
        too_often = state["bad"] >= probe.get("failureThreshold", 3)
        if kind == "readiness":
            if state["good"] >= probe.get("successThreshold", 1):
                self._on_ready(True)
            elif too_often:
                self._on_ready(False)
        elif too_often:
            self._on_dead(f"{kind} probe failed {state['bad']} times: {why}")
            return False
        return True
