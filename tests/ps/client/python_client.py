"""A trainer in another language: joins a job, pulls, pushes, commits and reads statistics, from the .proto files alone.

usage: python_client.py PROTOC PROTO_FOLDER EMPTY_FOLDER MASTER_ADDRESS JOB_FINGERPRINT SECRET_FILE
Prints "ok" and exits 0, or says what was not as the files promise. The job: one trainer, some parameter servers, nothing else.
"""
import hashlib
import hmac
import os
import struct
import subprocess
import sys
import threading
import time

import grpc

MASK = 2**64 - 1
TIMEOUT = 20  # seconds, for every call


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def fmix64(x):
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def virtual_shard(table, id):
    return fmix64(id ^ fmix64(table)) >> 54


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def floats(data):
    return list(struct.unpack("<%df" % (len(data) // 4), data))


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def expect(what, is_value, should_be):
    if is_value != should_be:
        sys.exit("%s: is %r, should be %r" % (what, is_value, should_be))


def expect_error(what, code, call):
    try:
        call()
    except grpc.RpcError as error:
        expect(what, error.code(), code)
        if not error.details():
            sys.exit(what + ": an error without a message")
        return
    sys.exit(what + ": was not refused")


def generate(protoc, protos, folder):
    files = [name for name in os.listdir(protos) if name.endswith(".proto")]
    subprocess.run([protoc, "--python_out=" + folder, "-I" + protos] + files, check=True)
    sys.path.insert(0, folder)


def token(secret):
    """What the job's secret becomes in a call: wire.proto."""
    return hmac.new(secret, b"tandem/call/v1", hashlib.sha256).hexdigest()


def read_secret(path):
    with open(path, "rb") as file:
        secret = file.read()
    for end in (b"\n", b"\r"):
        secret = secret[:-1] if secret.endswith(end) else secret
    return secret


class Service:
    """Methods of one gRPC service by their names. Without a secret its calls carry no token."""

    def __init__(self, channel, service, messages, secret=None):
        self.channel, self.service, self.messages = channel, "/tandem." + service + "/", messages
        self.metadata = [("authorization", "Bearer " + token(secret))] if secret else []

    def call(self, method, request):
        ask = self.channel.unary_unary(self.service + method, type(request).SerializeToString,
                                       getattr(self.messages, method + "Reply").FromString)
        end = time.time() + TIMEOUT
        while True:
            try:
                return ask(request, timeout=TIMEOUT, metadata=self.metadata)
            except grpc.RpcError as error:
                # A server may hear from its master after this client does: Unavailable says to come again.
                if error.code() != grpc.StatusCode.UNAVAILABLE or time.time() > end:
                    raise
                time.sleep(0.05)

    def stream(self, method, requests):
        ask = self.channel.stream_stream(self.service + method, type(requests[0]).SerializeToString,
                                         getattr(self.messages, method + "Reply").FromString)
        return list(ask(iter(requests), timeout=TIMEOUT, metadata=self.metadata))


def join(address, fingerprint, secret, master_pb2, wire_pb2):
    """The master, its answer, the header of every request from now on, this member's key, and what stops the heartbeats."""
    header = wire_pb2.RequestHeader(protocol_version=2, sender=wire_pb2.Sender(role=wire_pb2.TRAINER, incarnation=1))
    master = Service(grpc.insecure_channel(address), "MasterService", master_pb2, secret)
    key = os.urandom(32)
    request = master_pb2.RegisterRequest(header=header, host="localhost", pid=os.getpid(), preferred_index=-1,
                                         job_fingerprint=fingerprint, member_key=key)
    while True:
        reply = master.call("Register", request)
        if reply.job.phase != master_pb2.REGISTERING:
            break
    expect("the job's phase", reply.job.phase, master_pb2.RUNNING)
    header.job_epoch, header.generation = reply.job_epoch, reply.generation
    header.sender.rank, header.shard_map_version = reply.rank, reply.shard_map.version
    left = threading.Event()

    def beat():
        while not left.wait(1):
            master.call("Heartbeat", master_pb2.HeartbeatRequest(header=header, member_key=key))

    threading.Thread(target=beat, daemon=True).start()
    return master, reply, header, key, left


class Tables:
    """The verbs of a trainer, over all servers."""

    def __init__(self, reply, header, secret, pb2, wire_pb2):
        self.header, self.pb2 = header, pb2
        self.dims = {}
        self.sequence = 0
        self.channels = [grpc.insecure_channel(m.address) for m in reply.members if m.role == wire_pb2.PS]
        self.servers = [Service(channel, "EmbeddingService", pb2, secret) for channel in self.channels]
        self.for_strangers = [Service(channel, "EmbeddingService", pb2) for channel in self.channels]
        self.owners = [run.ps for run in reply.shard_map.runs for _ in range(run.num_shards)]
        expect("virtual shards", len(self.owners), 1024)

    def all(self, method, request):
        return [server.call(method, request) for server in self.servers]

    def by_owner(self, table, ids):
        """(server, its places in ids) of every server that has some."""
        places = [[i for i, id in enumerate(ids) if self.owners[virtual_shard(table, id)] == rank]
                  for rank in range(len(self.servers))]
        return [(server, mine) for server, mine in zip(self.servers, places) if mine]

    def create(self, specs):
        self.dims.update({spec.number: spec.dim for spec in specs})
        self.all("CreateTables", self.pb2.CreateTablesRequest(header=self.header, tables=specs, num_trainers=1))

    def pull_request(self, table, step, ids, create=False):
        return self.pb2.PullRequest(header=self.header, step=step, create=create, ids=struct.pack("<%dQ" % len(ids), *ids),
                                    segments=[self.pb2.Segment(table=table, count=len(ids))])

    def pull(self, table, step, ids, create=False):
        rows, dim = [None] * len(ids), self.dims[table]
        for server, places in self.by_owner(table, ids):
            # One message for each id: replies come in the order of requests.
            replies = server.stream("Pull", [self.pull_request(table, step, [ids[i]], create) for i in places])
            expect("replies of a stream", len(replies), len(places))
            for i, reply in zip(places, replies):
                rows[i] = floats(reply.rows)
                expect("numbers of a row", len(rows[i]), dim)
        return rows

    def push_request(self, table, step, slice, ids, gradients):
        self.sequence += 1
        request = self.pb2.PushRequest(header=self.header, sequence=self.sequence, step=step, slice=slice,
                                       segments=[self.pb2.Segment(table=table, count=len(ids))],
                                       ids=struct.pack("<%dQ" % len(ids), *ids),
                                       gradients=b"".join(struct.pack("<%df" % len(row), *row) for row in gradients))
        request.payload_crc32c = crc32c(request.ids + request.gradients)
        return request

    def push(self, table, step, slice, ids, gradients, times=1):
        for server, places in self.by_owner(table, ids):
            request = self.push_request(table, step, slice, [ids[i] for i in places], [gradients[i] for i in places])
            for _ in range(times):
                expect("reply to a push", server.stream("Push", [request]), [self.pb2.PushReply()])

    def on_streams(self, method, request):
        """The one reply of every server."""
        replies = [server.stream(method, [request]) for server in self.servers]
        expect("replies to one message", [len(of_server) for of_server in replies], [1] * len(self.servers))
        return [of_server[0] for of_server in replies]

    def commit(self, step, rate, scale):
        rates = [self.pb2.TableRate(table=table, learning_rate=rate) for table in self.dims]
        self.on_streams("Commit", self.pb2.CommitRequest(header=self.header, step=step, rates=rates, gradient_scale=scale))

    def squared_norm(self, step):
        replies = self.on_streams("GradientNorm", self.pb2.GradientNormRequest(header=self.header, step=step))
        return sum((reply.squared_norm_high << 64 | reply.squared_norm_low) / 2**64 for reply in replies)


def check_functions():
    expect("CRC-32C of 123456789", crc32c(b"123456789"), 0xE3069283)
    expect("token of a secret", token(b"correct horse battery staple"),
           "ba5a2c2b540608fb45cf46eacedc9242f64fc634c06c5966a94730871d830561")
    for table, id, shard in ((1, 1, 852), (1, 123456789, 842), (7, 2**64 - 1, 269)):
        expect("virtual shard of id %d of table %d" % (id, table), virtual_shard(table, id), shard)


def check_training(tables, pb2):
    ids = [1, 2, 77, 123456789, 2**63, 2**64 - 1]
    expect("rows before training", tables.pull(1, 1, ids, create=True), [[0.0] * 4] * len(ids))
    first = tables.pull(2, 1, ids, create=False)
    expect("rows that were only looked at", tables.pull(2, 1, ids, create=True), first)
    if first[0] == first[1] or not any(first[0]):
        sys.exit("first rows are not drawn at random: %r" % first)

    # The last slice comes first, and twice: it counts once. 2^24 - 2^24 + 1 tells the order of the sum.
    big = 2.0**24
    tables.push(1, 1, 2, ids, [[1.0, i, -2.0, 1.0] for i in range(len(ids))], times=2)
    tables.push(1, 1, 0, ids, [[big, 1.0, 0.0, -1.0]] * len(ids))
    tables.push(1, 1, 1, ids, [[-big, 0.0, 1.0, 0.0]] * len(ids))
    tables.push(2, 1, 0, ids[:3], [[3.0, 4.0]] * 3)
    tables.commit(1, rate=0.5, scale=0.25)
    expected = [[-0.125, -0.125 * (i + 1), 0.125, 0.0] for i in range(len(ids))]
    expect("rows after one step of SGD", tables.pull(1, 2, ids), expected)
    expected = [[f32(f32(w) - 0.125 * g) for w, g in zip(row, (3.0, 4.0))] for row in first[:3]] + first[3:]
    expect("rows after one step, of random first weights", tables.pull(2, 2, ids), expected)

    tables.push(2, 2, 0, ids, [[3.0, 4.0]] * len(ids))
    expect("squared norm of the step's gradients", tables.squared_norm(2), 25.0 * len(ids))
    tables.commit(2, rate=1.0, scale=1.0)
    return ids


def check_formats(tables, pb2, ids):
    for server, places in tables.by_owner(1, ids):
        mine = sorted(ids[i] for i in places)
        request = tables.pull_request(1, 3, [])
        request.segments[0].count = len(mine)
        request.ids_format, request.rows_format = pb2.IDS_DELTA, pb2.WIRE_BF16
        request.ids = b"".join(varint(id - before) for id, before in zip(mine, [0] + mine))
        rows = server.stream("Pull", [request])[0].rows
        values = [struct.unpack("<f", b"\0\0" + rows[i:i + 2])[0] for i in range(0, len(rows), 2)]
        expected = [[-0.125, -0.125 * (ids.index(id) + 1), 0.125, 0.0] for id in mine]
        expect("rows in bf16", values, [value for row in expected for value in row])


def check_statistics(tables, pb2, ids):
    replies = tables.all("Statistics", pb2.StatisticsRequest(header=tables.header))
    servers_of_1, servers_of_2 = len(tables.by_owner(1, ids)), len(tables.by_owner(2, ids))
    expect("servers with rows", servers_of_1 > 1, True)
    expect("pushes", sum(r.pushes for r in replies), 3 * servers_of_1 + servers_of_2 + len(tables.by_owner(2, ids[:3])))
    expect("repeated pushes", sum(r.repeated_pushes for r in replies), servers_of_1)
    expect("commits", [r.commits for r in replies], [2] * len(replies))
    expect("clocks", [list(r.clocks) for r in replies], [[2]] * len(replies))
    expect("rows", [sum(r.tables[i].rows for r in replies) for i in (0, 1)], [len(ids)] * 2)
    expect("names", [[t.name for t in r.tables] for r in replies], [["zeros", "random"]] * len(replies))


def check_errors(tables, pb2, ids):
    before = tables.pull(1, 3, ids)
    server, places = tables.by_owner(1, ids)[0]
    mine = ids[places[0]]
    invalid, refused = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION

    def push(ids, rows, change=lambda request: None):
        request = tables.push_request(1, 3, 0, ids, rows)
        change(request)
        return lambda: server.stream("Push", [request])

    def of_another_job(request):
        request.header.job_epoch += 1

    def damaged(request):
        request.payload_crc32c ^= 1

    expect_error("a push with the wrong dim", invalid, push([mine], [[1.0] * 3]))
    expect_error("a push of id 0", invalid, push([0], [[1.0] * 4]))
    expect_error("a push that was damaged", invalid, push([mine], [[1.0] * 4], damaged))
    expect_error("a push of another job", refused, push([mine], [[1.0] * 4], of_another_job))
    expect_error("a push with a NaN", grpc.StatusCode.OUT_OF_RANGE, push([mine], [[1.0, float("nan"), 1.0, 1.0]]))
    expect_error("a pull of id 0", invalid, lambda: server.stream("Pull", [tables.pull_request(1, 3, [0])]))
    expect_error("a pull of no table", invalid, lambda: server.stream("Pull", [tables.pull_request(9, 3, [mine])]))
    expect_error("a pull of an applied step", refused, lambda: server.stream("Pull", [tables.pull_request(1, 1, [mine])]))
    other = pb2.TableSpec(name="zeros", number=1, dim=5, optimizer=pb2.SPARSE_SGD)
    expect_error("a table of another dim", refused, lambda: tables.create([other]))
    tables.dims[1] = 4
    tables.commit(3, rate=1.0, scale=1.0)
    expect("rows after refused pushes", tables.pull(1, 4, ids), before)


def check_strangers(master, address, key, header, tables, ids, pb2, master_pb2):
    """Who does not know the secret is refused, whatever he knows besides; and who knows it speaks for himself alone."""
    unknown, not_its_own = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
    stranger = Service(grpc.insecure_channel(address), "MasterService", master_pb2)
    beat = master_pb2.HeartbeatRequest(header=header, member_key=key)
    expect_error("a stranger's heartbeat", unknown, lambda: stranger.call("Heartbeat", beat))
    before = tables.pull(1, 4, ids)
    server = tables.for_strangers[0]
    expect_error("a stranger's statistics", unknown, lambda: server.call("Statistics", pb2.StatisticsRequest(header=header)))
    expect_error("a stranger's pull", unknown, lambda: server.stream("Pull", [tables.pull_request(1, 4, ids)]))
    expect_error("a stranger's push for this trainer", unknown,
                 lambda: server.stream("Push", [tables.push_request(1, 4, 0, ids[:1], [[1e6] * 4])]))
    expect_error("a stranger's commit for this trainer", unknown,
                 lambda: server.stream("Commit", [pb2.CommitRequest(header=header, step=4, gradient_scale=1.0)]))
    expect_error("a heartbeat with another's key", not_its_own,
                 lambda: master.call("Heartbeat", master_pb2.HeartbeatRequest(header=header, member_key=b"a guess")))
    expect_error("a leave with another's key", not_its_own,
                 lambda: master.call("Leave", master_pb2.LeaveRequest(header=header, code=14, member_key=b"a guess")))
    expect("rows after strangers came", tables.pull(1, 4, ids), before)


def check_health(tables):
    for channel in tables.channels:  # grpc.health.v1, whose request is empty and whose reply is SERVING = 1 in field 1
        check = channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
        expect("health", check(b"", timeout=TIMEOUT), b"\x08\x01")


def main(protoc, protos, folder, master_address, fingerprint, secret_file):
    check_functions()
    generate(protoc, protos, folder)
    import embedding_pb2 as pb2
    import master_pb2
    import wire_pb2
    secret = read_secret(secret_file)
    master, reply, header, key, left = join(master_address, int(fingerprint), secret, master_pb2, wire_pb2)
    tables = Tables(reply, header, secret, pb2, wire_pb2)
    specs = [pb2.TableSpec(name="zeros", number=1, dim=4, optimizer=pb2.SPARSE_SGD),
             pb2.TableSpec(name="random", number=2, dim=2, optimizer=pb2.SPARSE_SGD, init_stddev=0.1, seed=7)]
    tables.create(specs)
    tables.create(specs)
    check_health(tables)
    ids = check_training(tables, pb2)
    check_formats(tables, pb2, ids)
    check_statistics(tables, pb2, ids)
    check_errors(tables, pb2, ids)
    check_strangers(master, master_address, key, header, tables, ids, pb2, master_pb2)
    left.set()
    master.call("Leave", master_pb2.LeaveRequest(header=header, code=0, member_key=key))
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
