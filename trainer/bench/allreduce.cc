// `tandem bench allreduce`: sums of f32 over ranks on this machine, by every kind of group, beside
// Gloo.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/gloo_allreduce.h"
#include "trainer/cli/help_text.h"
#include "trainer/cli/process/failure.h"
#include "trainer/comm/host/cpu_group.h"
#include "trainer/comm/net/tcp_group.h"
#include "trainer/report/text_table.h"

namespace tandem::bench {

namespace {

constexpr int64_t kBytes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 100 << 20};
// A repetition moves about so many bytes, so that its clock reads something.
constexpr int64_t kBytesOfRepetition = 64 << 20;
constexpr absl::Duration kPatience = absl::Seconds(120);

struct Figure {
  std::string backend;
  int ranks = 0;
  int64_t bytes = 0;
  double seconds = 0;
  bool correct = true;
  std::string algorithm = "";

  double algorithm_rate() const { return static_cast<double>(bytes) / seconds * 1e-9; }
  // The bytes that a rank must at least send, a second.
  double bus_rate() const { return algorithm_rate() * 2 * (ranks - 1) / ranks; }
};

// One rank's all-reduces of one array.
using AllReduce = std::function<absl::Status()>;

// Measures the all-reduces of a rank. Every rank runs the same ones; the first one's clock counts.
absl::Status MeasureRank(const AllReduce& all_reduce, std::vector<float>& values, int rank,
                         Figure* figure, int repetitions) {
  const auto count = static_cast<int64_t>(values.size());
  const auto expected = static_cast<float>(figure->ranks * (figure->ranks + 1) / 2);
  std::fill(values.begin(), values.end(), static_cast<float>(rank + 1));
  RETURN_IF_ERROR(all_reduce());
  const bool correct = std::count(values.begin(), values.end(), expected) == count;
  std::fill(values.begin(), values.end(), 0.0f);  // sums of zeros never overflow
  const int calls =
      static_cast<int>(std::clamp<int64_t>(kBytesOfRepetition / figure->bytes, 3, 3000));
  std::vector<double> seconds;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    RETURN_IF_ERROR(all_reduce());  // ranks begin together
    const Stopwatch watch;
    for (int call = 0; call < calls; ++call) RETURN_IF_ERROR(all_reduce());
    seconds.push_back(watch.Seconds() / calls);
  }
  if (rank == 0) figure->seconds = Median(seconds);
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  figure->correct = figure->correct && correct;
  return absl::OkStatus();
}

// Runs `body` on one thread per rank. Returns the first failure.
absl::Status OnRanks(int size, const std::function<absl::Status(int rank)>& body) {
  std::vector<absl::Status> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { results[rank] = body(rank); });
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& result : results) RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<comm::QueuedGroup>> MakeGroup(const std::string& backend,
                                                             rpc::Store* store, int rank,
                                                             int size) {
  const std::string token = absl::StrCat("bench", getpid());
  const absl::Time deadline = absl::Now() + kPatience;
  if (backend == "shm") {
    return comm::CpuGroup::Create({store, token, "bench", rank, size, kPatience}, deadline);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<comm::Endpoint> endpoint,
                   comm::Endpoint::Open("127.0.0.1:0", /*advertise=*/"", token));
  return comm::TcpGroup::Create({.store = store,
                                 .endpoint = std::move(endpoint),
                                 .name = "bench",
                                 .rank = rank,
                                 .size = size,
                                 .timeout = kPatience},
                                /*name=*/"", deadline);
}

absl::Status MeasureOurs(Figure* figure, int repetitions) {
  rpc::MemoryStore store;
  return OnRanks(figure->ranks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto group, MakeGroup(figure->backend, &store, rank, figure->ranks));
    std::vector<float> values(static_cast<size_t>(figure->bytes) / sizeof(float));
    const ArrayView view = DenseView(values.data(), {static_cast<int64_t>(values.size())});
    const auto all_reduce = [&] {
      return group->Await(group->AllReduce(view, {}), absl::Now() + kPatience);
    };
    return MeasureRank(all_reduce, values, rank, figure, repetitions);
  });
}

// The best of Gloo's algorithms.
absl::Status MeasureGloo(Figure* best, int repetitions) {
  const std::shared_ptr<void> store = NewGlooStore();
  // Kept until all ranks are done, because a rank that leaves fails the others' last sends.
  std::vector<std::unique_ptr<GlooRank>> group(static_cast<size_t>(best->ranks));
  std::vector<Figure> figures;
  RETURN_IF_ERROR(OnRanks(best->ranks, [&](int rank) -> absl::Status {
    group[rank] = NewGlooRank(store, rank, best->ranks);
    GlooRank* const gloo = group[rank].get();
    std::vector<float> values(static_cast<size_t>(best->bytes) / sizeof(float));
    if (rank == 0) figures.assign(gloo->Algorithms().size(), *best);
    for (size_t a = 0; a < gloo->Algorithms().size(); ++a) {
      gloo->Use(gloo->Algorithms()[a], values.data(), static_cast<int64_t>(values.size()));
      const auto all_reduce = [&] {
        gloo->AllReduce();
        return absl::OkStatus();
      };
      Figure figure = *best;
      figure.algorithm = gloo->Algorithms()[a];
      RETURN_IF_ERROR(MeasureRank(all_reduce, values, rank, &figure, repetitions));
      if (rank == 0) figures[a] = figure;
    }
    return absl::OkStatus();
  }));
  *best = *std::min_element(figures.begin(), figures.end(),
                            [](const Figure& a, const Figure& b) { return a.seconds < b.seconds; });
  return absl::OkStatus();
}

std::string JsonOf(const Figure& figure) {
  return absl::StrFormat(
      R"({"backend":"%s","algorithm":"%s","ranks":%d,"bytes":%d,"microseconds":%.2f,)"
      R"("algbw_gb_s":%.4f,"busbw_gb_s":%.4f,"correct":%s})",
      figure.backend, figure.algorithm, figure.ranks, figure.bytes, figure.seconds * 1e6,
      figure.algorithm_rate(), figure.bus_rate(), figure.correct ? "true" : "false");
}

absl::Status Measure(const AllReduceOptions& options) {
  FigureFile json(options.json);
  RETURN_IF_ERROR(json.status());
  std::vector<std::string> backends = options.backends;
  if (backends.empty()) backends = {"shm", "tcp"};
  if (options.backends.empty() && HasGloo()) backends.push_back("gloo");
  std::vector<int64_t> sizes = options.bytes;
  if (sizes.empty()) sizes.assign(std::begin(kBytes), std::end(kBytes));
  report::TextTable table({{"backend", report::TextTable::LEFT, 7},
                           {"ranks", {}, 5},
                           {"bytes", {}, 11},
                           {"us", {}, 10},
                           {"algbw GB/s", {}, 10},
                           {"busbw GB/s", {}, 10},
                           {"correct", report::TextTable::LEFT, 7},
                           {"algorithm", report::TextTable::LEFT}});
  std::vector<std::string> objects;
  bool correct = true;
  for (const int64_t bytes : sizes) {
    for (const std::string& backend : backends) {
      Figure figure{.backend = backend, .ranks = options.ranks, .bytes = bytes};
      if (backend == "gloo" && !HasGloo())
        return absl::InvalidArgumentError(
            "--backend is gloo; allowed: shm, tcp without libgloo-dev");
      RETURN_IF_ERROR(backend == "gloo" ? MeasureGloo(&figure, options.repetitions)
                                        : MeasureOurs(&figure, options.repetitions));
      table.Add({backend, absl::StrCat(figure.ranks), absl::StrCat(bytes),
                 FigureText(figure.seconds * 1e6, 1), FigureText(figure.algorithm_rate(), 2),
                 FigureText(figure.bus_rate(), 2), figure.correct ? "yes" : "NO",
                 figure.algorithm});
      std::fputs(table.TakeLines(cli::HelpColumns()).c_str(), stdout);
      std::fflush(stdout);
      objects.push_back(JsonOf(figure));
      correct = correct && figure.correct;
    }
  }
  RETURN_IF_ERROR(json.Write(objects));
  return correct ? absl::OkStatus() : absl::InternalError("some sums are wrong");
}

}  // namespace

int BenchAllReduce(const AllReduceOptions& options) {
  const absl::Status status = Measure(options);
  return status.ok() ? 0 : cli::ReportError(status);
}

}  // namespace tandem::bench
