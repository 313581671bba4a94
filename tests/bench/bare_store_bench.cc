// What `tandem bench store --dim 64` can reach at most on a machine: the same number of rows and ids a call, one thread, by bare loops that
// check, count and create nothing. Rows lie as the store's do, each behind a line with its header. Rows whose numbers are known, then rows
// whose numbers are found: all of a call before the first is visited, or in turns with the visits. Each way with rows fetched several
// distances ahead, into either cache; the best counts. Passes of one kind follow each other: where a host unmaps what looks idle, only the
// first of them finds an index that was left alone, and it is not the best. At the end rows are compared with what was done to them.
// Usage: tandem_bare_store_bench
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/memory/buffer.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/cpu/vector/vectorise.h"
#include "tests/bench/bare_rows.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/ids.h"

namespace tandem::bare {
namespace {

constexpr uint64_t kStoreRows = 10000000;
constexpr size_t kIdsOfCall = 4096 * 26, kCalls = 20;
constexpr size_t kIndexAhead = 32;
constexpr int kRepetitions = 5;

struct Gather {
  static constexpr const char* kName = "gather";
  static constexpr size_t kFloats = kDim;
  static void Visit(const float* row, float* value) { std::memcpy(value, row, kRowBytes); }
};
struct Adagrad {
  static constexpr const char* kName = "adagrad";
  static constexpr size_t kFloats = 2 * kDim;  // weights, then sums of squares
  static void Visit(float* row, const float* gradient) {
    constexpr float kRate = 0.01f, kEpsilon = 1e-8f;
#pragma GCC ivdep
    for (size_t i = 0; i < kDim; ++i) {
      const float square = row[kDim + i] += gradient[i] * gradient[i];
      row[i] -= kRate * gradient[i] / (std::sqrt(square) + kEpsilon);
    }
  }
};

template <class Operation>
class StoreBench {
 public:
  explicit StoreBench(bench::IdDistribution distribution)
      : ids_(kIdsOfCall * kCalls), known_(ids_.size()), found_(kIdsOfCall), memory_(Buffer::Allocate(kIdsOfCall * kRowBytes)) {
    bench::IdSource source(kStoreRows, distribution, 0);
    for (size_t i = 0; i < ids_.size(); ++i) known_[i] = rows_.Find(ids_[i] = source.Next(0));
    for (uint64_t id = 1; id <= kStoreRows; ++id) rows_.row(rows_.Find(id))[0] = FirstOf(id);
    std::fill(values(), values() + kIdsOfCall * kDim, 1.0f);
  }

  void Run(const char* ids) {
    std::vector<double> known[4], at_once[4], in_turns;  // seconds of calls
    const auto add_all = [&](std::vector<double>* seconds, bool find) {
      Pass(seconds[0], [=, this](size_t call) { VisitCall<16, 3>(call, find); });
      Pass(seconds[1], [=, this](size_t call) { VisitCall<32, 3>(call, find); });
      Pass(seconds[2], [=, this](size_t call) { VisitCall<32, 2>(call, find); });
      Pass(seconds[3], [=, this](size_t call) { VisitCall<64, 2>(call, find); });
    };
    for (int repetition = 0; repetition < kRepetitions; ++repetition) {
      add_all(known, /*find=*/false);
      add_all(at_once, /*find=*/true);
      Pass(in_turns, [this](size_t call) { FindInTurns(call); });
    }
    const double best = BestRate(known), found = BestRate(at_once), turns = RateOf(in_turns);
    std::printf("%-8s %8s %9.2f %13.2f %5.2f %13.2f %5.2f\n", Operation::kName, ids, best * 1e-6, found * 1e-6, found / best, turns * 1e-6,
                turns / best);
    std::fflush(stdout);
    Compare();
  }

 private:
  float* values() const { return static_cast<float*>(memory_->data()); }
  static float FirstOf(uint64_t id) { return Operation::kFloats == kDim ? static_cast<float>(id) : 0; }

  template <class Call>
  void Pass(std::vector<double>& seconds, const Call& call) {
    for (size_t i = 0; i < kCalls; ++i) {
      const Stopwatch watch;
      call(i);
      seconds.push_back(watch.Seconds());
    }
    ++passes_;
  }
  static double RateOf(const std::vector<double>& seconds) { return static_cast<double>(kIdsOfCall) / bench::Median(seconds); }
  static double BestRate(const std::vector<double> (&seconds)[4]) {
    double best = 0;
    for (const auto& of_way : seconds) best = std::max(best, RateOf(of_way));
    return best;
  }

  // The rows of a call, all of which are found first if `find`.
  template <size_t kRowsAhead, int kCache>
  void VisitCall(size_t call, bool find) {
    kernels::Vectorised([&rows = rows_, find, ids = ids_.data() + call * kIdsOfCall, found = found_.data(),
                         known = known_.data() + call * kIdsOfCall, values = values()] {
      if (find) {
        for (size_t i = 0; i < kIdsOfCall + kIndexAhead; ++i) {
          if (i < kIdsOfCall) rows.FetchIndex(ids[i]);
          if (i >= kIndexAhead) found[i - kIndexAhead] = rows.Find(ids[i - kIndexAhead]);
        }
      }
      const uint32_t* const numbers = find ? found : known;
      for (size_t i = 0; i < kIdsOfCall; ++i) {
        if (i + kRowsAhead < kIdsOfCall) FetchRow<Operation::kFloats, kCache>(rows.row(numbers[i + kRowsAhead]));
        Operation::Visit(rows.row(numbers[i]), values + i * kDim);
      }
    });
  }

  void FindInTurns(size_t call) {
    kernels::Vectorised([&rows = rows_, ids = ids_.data() + call * kIdsOfCall, found = found_.data(), values = values()] {
      ForEachFound(rows, ids, kIdsOfCall, found, [=, &rows](size_t i) { Operation::Visit(rows.row(found[i]), values + i * kDim); });
    });
  }

  // Of gather the last call's rows, which it was given by numbers found; of Adagrad, whose gradients are all 1, how often rows were visited.
  void Compare() const {
    if (Operation::kFloats == kDim) {
      for (size_t i = 0; i < kIdsOfCall; ++i) TANDEM_CHECK_EQ(values()[i * kDim], FirstOf(ids_[ids_.size() - kIdsOfCall + i]));
      return;
    }
    double visits = 0;
    for (uint64_t id = 1; id <= kStoreRows; ++id) visits += rows_.row(rows_.Find(id))[Operation::kFloats - 1];
    TANDEM_CHECK_EQ(visits, static_cast<double>(passes_ * ids_.size()));
  }

  const RowsOf<kStoreRows, Operation::kFloats, /*kLineBits=*/22, kCacheLine / sizeof(float)> rows_;  // 0.6 full
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> known_, found_;
  const std::shared_ptr<Buffer> memory_;  // [kIdsOfCall, kDim] f32: rows read, or gradients
  uint64_t passes_ = 0;                   // over all calls
};

template <class Operation>
void RunBoth() {
  StoreBench<Operation>(bench::IdDistribution::UNIFORM).Run("uniform");
  StoreBench<Operation>(bench::IdDistribution::ZIPF).Run("zipf");
}

}  // namespace
}  // namespace tandem::bare

int main() {
  std::printf("M rows/s of 64 f32, one thread, %zu ids a call, medians of the calls of %d passes, and what they are of known rows'\n"
              "%-8s %8s %9s %19s %19s\n",
              tandem::bare::kIdsOfCall, tandem::bare::kRepetitions, "op", "ids", "known", "found, then visited", "found in turns");
  tandem::bare::RunBoth<tandem::bare::Gather>();
  tandem::bare::RunBoth<tandem::bare::Adagrad>();
}
