// What a raw gRPC stream carries whose receiver does what a push is for and no more: messages of about 1 MB, ids and then rows, gathered by
// the sender at random from 256 MB; the receiver either copies them out, which is the raw stream of `tandem bench pull-push`, or looks
// the ids up and subtracts the rows where they came from those of its own. No checks, versions, exactly-once or steps. A client and a server
// process; at the end the rows add up to what was sent.
// Usage: tandem_bare_push_bench
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/cpu/vectorise.h"
#include "ps/wire_rows.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "tests/bench/bare_rows.h"
#include "trainer/cli/bench_figures.h"
#include "trainer/cli/bench_raw_bytes.h"

namespace tandem::bare {
namespace {

constexpr char kService[] = "tandem.BarePush";
constexpr size_t kPerMessage = 4096, kIdBytes = kPerMessage * sizeof(uint64_t), kMessageBytes = kIdBytes + kPerMessage * kRowBytes;
constexpr double kSeconds = 0.3;
constexpr int kRepetitions = 9, kWindows[] = {1, 4, 8};
constexpr absl::Duration kPatience = absl::Seconds(60);

void Subtract(const Rows& rows, const rpc::Payload& message) {
  std::vector<std::string_view> pieces;
  for (const rpc::Payload::Slice& slice : message.slices()) pieces.emplace_back(slice.data, slice.size);
  ps::PieceReader reader(pieces);
  std::vector<uint64_t> ids(kPerMessage), scratch(kPerMessage);
  std::memcpy(ids.data(), reader.Next(kIdBytes, reinterpret_cast<char*>(scratch.data())), kIdBytes);
  std::vector<uint32_t> numbers(kPerMessage);
  char cut[kRowBytes];  // a row that two pieces share
  kernels::Vectorised([&] {
    ForEachFound(rows, ids.data(), ids.size(), numbers.data(), [&](size_t i) {
      float gradient[kDim];
      std::memcpy(gradient, reader.Next(kRowBytes, cut), kRowBytes);
      float* const row = rows.row(numbers[i]);
      for (size_t column = 0; column < kDim; ++column) row[column] -= gradient[column];
    });
  });
}

// Writes its address to `pipe`, and serves until it is killed, by its parent or with it.
[[noreturn]] void Serve(int pipe) {
  TANDEM_CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
  const Rows rows;
  uint64_t num_rows = 0;
  rpc::Server server;
  server.Handle(kService, "Copy", rpc::MethodKind::STREAM, [](rpc::Payload message, rpc::Reply reply) {
    cli::RawMemory::Take(message);
    reply(rpc::Payload());
  });
  server.Handle(kService, "Subtract", rpc::MethodKind::STREAM, [&](rpc::Payload message, rpc::Reply reply) {
    Subtract(rows, message);
    num_rows += kPerMessage;
    reply(rpc::Payload());
  });
  server.Handle(kService, "Finish", rpc::MethodKind::UNARY, [&](rpc::Payload, rpc::Reply reply) {
    double sum = 0;
    for (uint32_t number = 0; number < kNumRows; ++number) {
      for (size_t column = 0; column < kDim; ++column) sum -= rows.row(number)[column];
    }
    TANDEM_CHECK_EQ(sum, static_cast<double>(num_rows * kDim));
    reply(rpc::Payload());
  });
  TANDEM_CHECK(server.Start("127.0.0.1:0").ok());
  const std::string address = server.address() + "\n";
  TANDEM_CHECK_EQ(write(pipe, address.data(), address.size()), static_cast<ssize_t>(address.size()));
  while (true) pause();
}

class Client {
 public:
  explicit Client(const std::string& address) : channel_(address) {
    for (uint32_t number = 0; number < kNumRows; ++number) std::fill(rows_.row(number), rows_.row(number) + kDim, 1.0f);
  }

  // Bytes a second with `window` messages on their way.
  double Measure(const std::string& method, int window) {
    const auto stream = channel_.OpenStream(std::string("/") + kService + "/" + method, window);
    std::vector<rpc::Future<rpc::Payload>> sent;
    const Stopwatch watch;
    while (watch.Seconds() < kSeconds) {
      if (sent.size() >= static_cast<size_t>(window)) Await(sent[sent.size() - window]);
      sent.push_back(stream->Send(Gather([&](size_t num_bytes) { return stream->Allocate(num_bytes); })));
    }
    for (const auto& reply : sent) Await(reply);
    return static_cast<double>(sent.size() * kMessageBytes) / watch.Seconds();
  }
  void Finish() { Await(channel_.Call(std::string("/") + kService + "/Finish", rpc::Payload(), {.deadline = kPatience})); }

 private:
  static void Await(const rpc::Future<rpc::Payload>& reply) { TANDEM_CHECK(reply.Wait(absl::Now() + kPatience).ok()); }

  template <class Allocate>
  rpc::Payload Gather(const Allocate& allocate) {
    const std::shared_ptr<Buffer> message = allocate(kMessageBytes);
    auto* const ids = static_cast<uint64_t*>(message->data());
    char* const rows = static_cast<char*>(message->data()) + kIdBytes;
    for (size_t i = 0; i < kPerMessage; ++i) ids[i] = 1 + Fmix64(++num_sent_) % kNumRows;
    kernels::Vectorised([&] {
      // The sender knows where its gradients lie.
      const auto number = [&](size_t i) __attribute__((always_inline)) { return static_cast<uint32_t>(ids[i] - 1); };
      for (size_t i = 0; i < kPerMessage + kAhead; ++i) {
        if (i < kPerMessage) rows_.Fetch(number(i));
        if (i >= kAhead) std::memcpy(rows + (i - kAhead) * kRowBytes, rows_.row(number(i - kAhead)), kRowBytes);
      }
    });
    rpc::Payload payload;
    payload.Append(message->data(), kMessageBytes, message);
    return payload;
  }

  const Rows rows_;
  rpc::Channel channel_;
  uint64_t num_sent_ = 0;
};

std::string ReadLine(int pipe) {
  std::string line;
  for (char next = 0; read(pipe, &next, 1) == 1 && next != '\n';) line += next;
  return line;
}

}  // namespace
}  // namespace tandem::bare

int main() {
  using namespace tandem::bare;
  int pipe_ends[2];
  TANDEM_CHECK_EQ(pipe(pipe_ends), 0);
  const pid_t server = fork();  // before any thread of gRPC
  TANDEM_CHECK_GE(server, 0);
  if (server == 0) Serve(pipe_ends[1]);
  Client client(ReadLine(pipe_ends[0]));
  for (const int window : kWindows) {
    std::vector<double> copied, subtracted;
    for (int repetition = 0; repetition < kRepetitions; ++repetition) {
      copied.push_back(client.Measure("Copy", window));
      subtracted.push_back(client.Measure("Subtract", window));
    }
    std::printf("%d on their way: copied out %.2f GB/s, looked up and subtracted %.2f GB/s (%.1f M rows/s), %.2f of it\n", window,
                tandem::cli::Median(copied) * 1e-9, tandem::cli::Median(subtracted) * 1e-9, tandem::cli::Median(subtracted) / (kRowBytes + sizeof(uint64_t)) * 1e-6,
                tandem::cli::Median(subtracted) / tandem::cli::Median(copied));
    std::fflush(stdout);
  }
  client.Finish();
  kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
}
