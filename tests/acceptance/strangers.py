"""Calls every method of every service of a running job, without its secret, with a wrong one and with the right one.

usage: strangers.py PROTO_FOLDER SECRET_FILE PID_OF_LAUNCH OUT
The services come from the .proto files and the ports from /proc, so that what is new is tried too. Exits with 0 if no stranger got anything.
"""
import collections
import hashlib
import hmac
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TIMEOUT = 10  # seconds, for every call
NOT_OF_A_JOB = {"tandem.BenchService"}  # served by the processes of `tandem bench` alone
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
NOT_SERVED = {UNAUTHENTICATED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}

Method = collections.namedtuple("Method", "path is_stream request")


def token(secret):
    return "Bearer " + hmac.new(secret, b"tandem/call/v1", hashlib.sha256).hexdigest()


def methods_of(protos):
    """Every method of every service, with a request that fills the fields that a header has."""
    files = [name for name in sorted(os.listdir(protos)) if name.endswith(".proto")]
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "--include_imports", "-I" + protos, "--descriptor_set_out=" + out.name] + files, check=True)
        described = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    methods = []
    for file in described.file:
        for service in file.service:
            name = file.package + "." + service.name
            if name in NOT_OF_A_JOB:
                continue
            for method in service.method:
                request = factory.GetPrototype(pool.FindMessageTypeByName(method.input_type[1:]))()
                fill(request)
                methods.append(Method("/%s/%s" % (name, method.name), method.client_streaming, request.SerializeToString()))
    return methods


def fill(message):
    """A header, wherever the message has one, of a trainer that knows everything but the job's epoch, which no call may guess."""
    for field in message.DESCRIPTOR.fields:
        if field.name == "header":
            header = message.header
            header.protocol_version, header.generation, header.job_epoch = 2, 1, 12345
            header.sender.role, header.sender.incarnation = 3, 1
        elif field.name == "caller":
            fill(message.caller)


def processes_of(launch):
    """launch and its children."""
    found = [launch]
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name) as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if parent == launch:
            found.append(int(name))
    return found


def sockets_of(pids):
    inodes = set()
    for pid in pids:
        try:
            links = os.listdir("/proc/%d/fd" % pid)
        except OSError:
            continue
        for fd in links:
            try:
                link = os.readlink("/proc/%d/fd/%s" % (pid, fd))
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    return inodes


def listening(pids):
    """Addresses of the TCP ports, and names of the local sockets, on which these processes listen."""
    inodes, ports, names = sockets_of(pids), [], []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        with open(table) as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    ports.append(int(fields[1].rsplit(":", 1)[1], 16))
    with open("/proc/net/unix") as file:
        for line in list(file)[1:]:
            fields = line.split()
            if int(fields[3], 16) & 0x10000 and fields[6] in inodes:  # __SO_ACCEPTCON
                names.append(fields[7] if len(fields) > 7 else "")
    return ["127.0.0.1:%d" % port for port in sorted(ports)], sorted(names)


def call(channel, method, metadata):
    """The status of one call."""
    try:
        if method.is_stream:
            list(channel.stream_stream(method.path, bytes, bytes)(iter([method.request]), timeout=TIMEOUT, metadata=metadata))
        else:
            channel.unary_unary(method.path, bytes, bytes)(method.request, timeout=TIMEOUT, metadata=metadata)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def call_everywhere(channels, methods, metadata):
    """{method's path: statuses, of the servers that have the method}"""
    return {method.path: [status for status in (call(channel, method, metadata) for channel in channels)
                          if status != grpc.StatusCode.UNIMPLEMENTED] for method in methods}


def shared_memory_hello(name, method, shown):
    """The status code and the number of descriptors with which a server answers the hello of a stream (rpc/shared/protocol.h)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect("\0" + name[1:])
        connection.send(struct.pack("<II72s", 0x544E444D, 2, shown.encode()) + method.encode())
        packet, descriptors, _, _ = socket.recv_fds(connection, 1024, 4)
        for descriptor in descriptors:
            os.close(descriptor)
        return struct.unpack_from("<IIQQ", packet)[3], len(descriptors)


def send_garbage(address):
    """Whether the server closes a connection that is no HTTP/2, and says nothing that is not."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), TIMEOUT) as connection:
        connection.settimeout(TIMEOUT)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + os.urandom(4096))
        said = b""
        try:
            while len(said) < 65536:
                piece = connection.recv(4096)
                if not piece:
                    return True
                said += piece
        except ConnectionError:
            return True
        except socket.timeout:
            return False
    return False


def serving(channel):
    """The health service needs no secret."""
    try:
        return channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)(b"", timeout=TIMEOUT) == b"\x08\x01"
    except grpc.RpcError:
        return False


def check_strangers(channels, names, methods, wrong):
    """What strangers got, or nothing."""
    got, num_calls = [], 0
    for metadata in ([], [("authorization", wrong)], [("authorization", "Bearer ")]):
        for path, statuses in call_everywhere(channels, methods, metadata).items():
            num_calls += len(statuses)
            if not statuses:
                got.append(path + " is served nowhere")
            got += ["%s answered %s" % (path, status.name) for status in statuses if status != UNAUTHENTICATED]
    num_hellos = 0
    for name in names:
        for method in methods + [Method("/no.Such/Method", True, b"")]:
            for shown in ("", wrong):
                answer = shared_memory_hello(name, method.path, shown)
                num_hellos += 1
                if answer != (UNAUTHENTICATED.value[0], 0):
                    got.append("%s of %s answered %r" % (method.path, name, answer))
    print("strangers: %s %d methods, %d calls, %d hellos refused%s" % ("all" if not got else "NOT all", len(methods), num_calls, num_hellos,
                                                                       "; " + "; ".join(got[:5]) if got else ""))
    return not got


def check_members(channels, names, methods, right):
    metadata = [("authorization", right)]
    refused = [path for path, statuses in call_everywhere(channels, methods, metadata).items()
               if not statuses or not NOT_SERVED.isdisjoint(statuses)]
    welcomed = 0
    for name in names:
        for method in methods:
            code, descriptors = shared_memory_hello(name, method.path, right)
            if code == UNAUTHENTICATED.value[0]:
                refused.append(method.path + " through shared memory")
            welcomed += descriptors
    if names and not welcomed:
        refused.append("every stream through shared memory")
    print("members: %s %d methods served, %d streams of shared memory welcomed%s" % ("all" if not refused else "NOT all", len(methods), welcomed,
                                                                                     "; refused: " + ", ".join(refused) if refused else ""))
    return not refused


def check_ports(addresses, channels, names):
    odd = [address for address, channel in zip(addresses, channels) if not serving(channel)]
    odd += [name for name in names if not re.fullmatch(r"@tandem-streams/127\.0\.0\.1:\d+", name)]
    open_to_garbage = [address for address in addresses if not send_garbage(address)]
    odd += ["%s stays open to garbage" % address for address in open_to_garbage]
    odd += [address + " does not serve afterwards" for address, channel in zip(addresses, channels) if not serving(channel)]
    print("ports: %d ports and %d local sockets%s" % (len(addresses), len(names), "; odd: " + ", ".join(odd) if odd else ", all known"))
    return not odd and len(addresses) >= 4  # a master, two servers, a worker


def main(protos, secret_file, launch, out):
    with open(secret_file, "rb") as file:
        secret = file.read().rstrip(b"\n")
    addresses, names = listening(processes_of(int(launch)))
    channels = [grpc.insecure_channel(address) for address in addresses]
    methods = methods_of(protos)
    right, wrong = token(secret), token(secret + b"x")
    good = check_ports(addresses, channels, names)
    good &= check_strangers(channels, names, methods, wrong)
    good &= check_members(channels, names, methods, right)
    good &= check_strangers(channels, names, methods, wrong)
    left = [name for name in os.listdir("/dev/shm") if name.startswith("tandem-")]
    if left:
        print("names in /dev/shm: " + ", ".join(left))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
