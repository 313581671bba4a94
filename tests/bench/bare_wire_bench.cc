// What gRPC streams carry whose ends do what pulls and pushes are for and no more, beside the raw streams of `tandem bench pull-push`, whose
// ends only gather pieces at random and copy them out. Messages of about 1 MB. Of a push, ids and then rows, which the sender gathers at
// random from 256 MB, the receiver looks the ids up and subtracts the rows where they came from those of its own. Of a pull, which asks with
// ids, the sender looks them up and gathers the rows from 256 MB, and the receiver copies them out. No checks, versions, exactly-once or
// steps. A client and a server process; pulled rows are those of their ids, and at the end the server's add up to what was pushed.
// Usage: tandem_bare_wire_bench
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/cpu/vector/vectorise.h"
#include "ps/wire/wire_rows.h"
#include "rpc/channel.h"
#include "rpc/process.h"
#include "rpc/server.h"
#include "tests/bench/bare_rows.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/raw_bytes.h"

namespace tandem::bare {
namespace {

constexpr char kService[] = "tandem.BareWire";
constexpr size_t kPerMessage = 4096, kIdBytes = kPerMessage * sizeof(uint64_t), kRowsBytes = kPerMessage * kRowBytes;
constexpr double kSeconds = 0.3;
constexpr int kRepetitions = 9, kWindows[] = {1, 4, 8};
constexpr absl::Duration kPatience = absl::Seconds(60);

std::vector<std::string_view> PiecesOf(const rpc::Payload& message) {
  std::vector<std::string_view> pieces;
  for (const rpc::Payload::Slice& slice : message.slices()) pieces.emplace_back(slice.data, slice.size);
  return pieces;
}

std::vector<uint64_t> ReadIds(ps::PieceReader& reader) {
  std::vector<uint64_t> ids(kPerMessage), scratch(kPerMessage);
  std::memcpy(ids.data(), reader.Next(kIdBytes, reinterpret_cast<char*>(scratch.data())), kIdBytes);
  return ids;
}

void Subtract(const Rows& rows, const rpc::Payload& message) {
  const std::vector<std::string_view> pieces = PiecesOf(message);
  ps::PieceReader reader(pieces);
  const std::vector<uint64_t> ids = ReadIds(reader);
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

void Gather(const Rows& rows, const rpc::Payload& request, char* target) {
  const std::vector<std::string_view> pieces = PiecesOf(request);
  ps::PieceReader reader(pieces);
  const std::vector<uint64_t> ids = ReadIds(reader);
  std::vector<uint32_t> numbers(kPerMessage);
  kernels::Vectorised([&] {
    ForEachFound(rows, ids.data(), ids.size(), numbers.data(),
                 [&](size_t i) { std::memcpy(target + i * kRowBytes, rows.row(numbers[i]), kRowBytes); });
  });
}

rpc::Payload PayloadOf(const std::shared_ptr<Buffer>& message, size_t num_bytes) {
  rpc::Payload payload;
  payload.Append(message->data(), num_bytes, message);
  return payload;
}

// Writes its address to `pipe`, and serves until it is killed, by its parent or with it.
[[noreturn]] void Serve(int pipe) {
  TANDEM_CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
  const Rows rows, shown;  // pushed to, and pulled
  for (uint64_t id = 1; id <= kNumRows; ++id) shown.row(shown.Find(id))[0] = static_cast<float>(id);
  uint64_t num_pushed = 0;
  bench::RawBytesService raw;
  rpc::Server server;
  raw.Register(server);
  server.Handle(kService, "Push", rpc::MethodKind::STREAM, [&](rpc::Payload message, rpc::Reply reply) {
    Subtract(rows, message);
    num_pushed += kPerMessage;
    reply(rpc::Payload());
  });
  server.Handle(kService, "Pull", rpc::MethodKind::STREAM, [&](rpc::Payload request, rpc::Reply reply) {
    const std::shared_ptr<Buffer> message = reply.Allocate(kRowsBytes);
    Gather(shown, request, static_cast<char*>(message->data()));
    reply(PayloadOf(message, kRowsBytes));
  });
  server.Handle(kService, "Finish", rpc::MethodKind::UNARY, [&](rpc::Payload, rpc::Reply reply) {
    double sum = 0;
    for (uint32_t number = 0; number < kNumRows; ++number) {
      for (size_t column = 0; column < kDim; ++column) sum -= rows.row(number)[column];
    }
    TANDEM_CHECK_EQ(sum, static_cast<double>(num_pushed * kDim));
    reply(rpc::Payload());
  });
  TANDEM_CHECK(server.Start("127.0.0.1:0").ok());
  const std::string address = server.address() + "\n";
  TANDEM_CHECK_EQ(write(pipe, address.data(), address.size()), static_cast<ssize_t>(address.size()));
  while (true) pause();
}

class Client {
 public:
  explicit Client(const std::string& address)
      : channel_(address), raw_({address}, /*shared_memory=*/false, rpc::Credentials()), pulled_(Buffer::Allocate(kRowsBytes)) {
    for (uint32_t number = 0; number < kNumRows; ++number) std::fill(rows_.row(number), rows_.row(number) + kDim, 1.0f);
  }

  // Bytes a second, as all that follows.
  std::vector<double> Raw(bench::RawBytesClient::Direction direction) {
    std::vector<double> rates;
    for (const int window : bench::kRawWindows) {
      const absl::StatusOr<double> rate = raw_.Measure(direction, window, absl::Seconds(kSeconds));
      TANDEM_CHECK(rate.ok());
      rates.push_back(*rate);
    }
    return rates;
  }
  // `window` messages on their way.
  double Push(int window) {
    return Measure("Push", window, [this](rpc::ClientStream& stream) {
      const std::shared_ptr<Buffer> message = stream.Allocate(kIdBytes + kRowsBytes);
      auto* const ids = static_cast<uint64_t*>(message->data());
      DrawIds(ids);
      GatherGradients(ids, static_cast<char*>(message->data()) + kIdBytes);
      return Sent{.reply = stream.Send(PayloadOf(message, kIdBytes + kRowsBytes))};
    }, [](const Sent&, const rpc::Payload&) {});
  }
  double Pull(int window) {
    return Measure("Pull", window, [this](rpc::ClientStream& stream) {
      const std::shared_ptr<Buffer> message = stream.Allocate(kIdBytes);
      DrawIds(static_cast<uint64_t*>(message->data()));
      return Sent{.reply = stream.Send(PayloadOf(message, kIdBytes)), .ids = message};
    }, [this](const Sent& sent, const rpc::Payload& reply) {
      auto* next = static_cast<char*>(pulled_->data());
      for (const rpc::Payload::Slice& slice : reply.slices()) {
        std::memcpy(next, slice.data, slice.size);
        next += slice.size;
      }
      for (const size_t i : {size_t{0}, kPerMessage - 1}) {
        const uint64_t id = static_cast<const uint64_t*>(sent.ids->data())[i];
        TANDEM_CHECK_EQ(static_cast<const float*>(pulled_->data())[i * kDim], static_cast<float>(id));
      }
    });
  }
  void Finish() { Await(channel_.Call(std::string("/") + kService + "/Finish", rpc::Payload(), {.deadline = kPatience})); }

 private:
  struct Sent {
    rpc::Future<rpc::Payload> reply;
    std::shared_ptr<Buffer> ids = nullptr;  // of a pull
  };

  static rpc::Payload Await(const rpc::Future<rpc::Payload>& reply) {
    absl::StatusOr<rpc::Payload> answer = reply.Wait(absl::Now() + kPatience);
    TANDEM_CHECK(answer.ok());
    return *std::move(answer);
  }
  void DrawIds(uint64_t* ids) {
    for (size_t i = 0; i < kPerMessage; ++i) ids[i] = 1 + Fmix64(++num_drawn_) % kNumRows;
  }

  void GatherGradients(const uint64_t* ids, char* target) const {
    kernels::Vectorised([=, this] {
      // The sender knows where its gradients lie.
      const auto number = [=](size_t i) __attribute__((always_inline)) { return static_cast<uint32_t>(ids[i] - 1); };
      for (size_t i = 0; i < kPerMessage + kAhead; ++i) {
        if (i < kPerMessage) rows_.Fetch(number(i));
        if (i >= kAhead) std::memcpy(target + (i - kAhead) * kRowBytes, rows_.row(number(i - kAhead)), kRowBytes);
      }
    });
  }

  // Of send(stream), which returns what is Sent, and take(sent, reply).
  template <class Send, class Take>
  double Measure(const std::string& method, int window, const Send& send, const Take& take) {
    const auto stream = channel_.OpenStream(std::string("/") + kService + "/" + method, window);
    std::deque<Sent> on_the_way;
    const auto take_first = [&] {
      take(on_the_way.front(), Await(on_the_way.front().reply));
      on_the_way.pop_front();
    };
    uint64_t num_messages = 0;
    const Stopwatch watch;
    for (; watch.Seconds() < kSeconds; ++num_messages) {
      if (on_the_way.size() >= static_cast<size_t>(window)) take_first();
      on_the_way.push_back(send(*stream));
    }
    while (!on_the_way.empty()) take_first();
    return static_cast<double>(num_messages * (kIdBytes + kRowsBytes)) / watch.Seconds();
  }

  const Rows rows_;
  rpc::Channel channel_;
  bench::RawBytesClient raw_;
  const std::shared_ptr<Buffer> pulled_;
  uint64_t num_drawn_ = 0;
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
  tandem::rpc::PrepareProcess();
  int pipe_ends[2];
  TANDEM_CHECK_EQ(pipe(pipe_ends), 0);
  const pid_t server = fork();  // before any thread of gRPC
  TANDEM_CHECK_GE(server, 0);
  if (server == 0) Serve(pipe_ends[1]);
  Client client(ReadLine(pipe_ends[0]));
  using Direction = tandem::bench::RawBytesClient::Direction;
  std::printf("M rows/s of 64 f32 over a gRPC stream, GB/s of ids and rows, and what they are of a raw stream's; medians of %d\n"
              "%-6s %7s %8s %6s %5s %5s\n",
              kRepetitions, "", "on way", "M rows/s", "GB/s", "raw", "share");
  for (const int window : kWindows) {
    for (const Direction direction : {Direction::PULL, Direction::PUSH}) {
      const bool pull = direction == Direction::PULL;
      std::vector<std::vector<double>> by_window;
      std::vector<double> rates, shares;
      for (int repetition = 0; repetition < kRepetitions; ++repetition) {
        by_window.push_back(client.Raw(direction));
        rates.push_back(pull ? client.Pull(window) : client.Push(window));
      }
      const std::vector<double> raw = tandem::bench::RatesOfBestWindow(by_window);
      for (size_t i = 0; i < rates.size(); ++i) shares.push_back(rates[i] / raw[i]);
      const double rate = tandem::bench::Median(rates);
      std::printf("%-6s %7d %8.2f %6.2f %5.2f %5.2f\n", pull ? "pulls" : "pushes", window, rate / (kRowBytes + sizeof(uint64_t)) * 1e-6,
                  rate * 1e-9, tandem::bench::Median(raw) * 1e-9, tandem::bench::Median(shares));
      std::fflush(stdout);
    }
  }
  client.Finish();
  kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
}
