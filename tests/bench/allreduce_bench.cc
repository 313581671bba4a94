// Measures all-reduce of f32 between forked processes over shared memory, in two ways.
// - Private memory: back-to-back calls; copies in and out count.
// - Zero copy: an allocated buffer that every rank rewrites before and reads after each call. The
// time of the same loop around a barrier is subtracted.
// Prints the median of repetitions: microseconds and bus bandwidth.
// Usage: allreduce_bench [RANKS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "kernels/base/clock.h"
#include "tests/conformance/file_store.h"
#include "trainer/comm/host/cpu_group.h"

namespace tandem::comm {
namespace {

constexpr int kRepetitions = 7;
constexpr int64_t kBytes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 100 << 20};

bool Ok(const Work& work) {
  const absl::Status status = work.Wait(absl::Now() + absl::Seconds(120));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok();
}

// Median seconds of one body.
double Median(ProcessGroup& group, int64_t num_bytes, const std::function<void()>& body) {
  const int calls = static_cast<int>(std::clamp<int64_t>((64 << 20) / num_bytes, 3, 3000));
  std::vector<double> seconds;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    body();
    if (!Ok(group.Barrier({}))) _exit(1);
    Stopwatch watch;
    for (int i = 0; i < calls; ++i) body();
    seconds.push_back(watch.Seconds() / calls);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRepetitions / 2];
}

void Print(ProcessGroup& group, const char* what, int64_t num_bytes, double seconds) {
  if (group.rank() != 0) return;
  const double bus =
      2.0 * (group.size() - 1) / group.size() * static_cast<double>(num_bytes) / seconds * 1e-9;
  std::printf("%-10s ranks %d %10ld bytes %10.1f us %7.2f GB/s\n", what, group.size(),
              static_cast<long>(num_bytes), seconds * 1e6, bus);
  std::fflush(stdout);
}

void MeasurePrivate(ProcessGroup& group, int64_t num_bytes) {
  std::vector<float> values(num_bytes / 4, 0.0f);
  const ArrayView view = DenseView(values.data(), {num_bytes / 4});
  Print(group, "private", num_bytes, Median(group, num_bytes, [&] {
          if (!Ok(group.AllReduce(view, {}))) _exit(1);
        }));
}

// Each rank rewrites its array before and reads it after each call, as it does with gradients.
void MeasureInPlace(ProcessGroup& group, int64_t num_bytes, const char* what, float* values) {
  const int64_t count = num_bytes / 4;
  volatile float sink = 0;
  auto around = [&](const std::function<bool()>& call) {
    std::fill(values, values + count, 1.0f);
    if (!call()) _exit(1);
    sink = sink + std::accumulate(values, values + count, 0.0f);
  };
  const double with = Median(group, num_bytes, [&] {
    around([&] { return Ok(group.AllReduce(DenseView(values, {count}), {})); });
  });
  const double without =
      Median(group, num_bytes, [&] { around([&] { return Ok(group.Barrier({})); }); });
  Print(group, what, num_bytes, with - without);
}

void RunRank(ProcessGroup& group) {
  for (int64_t num_bytes : kBytes) {
    MeasurePrivate(group, num_bytes);
    if (num_bytes < (1 << 20)) continue;
    std::vector<float> values(num_bytes / 4);
    MeasureInPlace(group, num_bytes, "copied", values.data());
    auto buffer = group.Allocate(static_cast<size_t>(num_bytes));
    if (!buffer.ok()) _exit(1);
    MeasureInPlace(group, num_bytes, "zero-copy", static_cast<float*>((*buffer)->data()));
  }
}

}  // namespace
}  // namespace tandem::comm

int main(int argc, char** argv) {
  using namespace tandem::comm;
  const int size = argc > 1 ? std::atoi(argv[1]) : 2;
  FileStore store;
  const std::string token = absl::StrCat("bench", getpid());
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    if (const pid_t child = fork(); child != 0) {
      children.push_back(child);
      continue;
    }
    auto group =
        CpuGroup::Create({&store, token, "bench", rank, size}, absl::Now() + absl::Seconds(30));
    if (!group.ok()) _exit(1);
    RunRank(**group);
    group->reset();
    _exit(0);
  }
  int failures = 0;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failures += status != 0;
  }
  return failures == 0 ? 0 : 1;
}
