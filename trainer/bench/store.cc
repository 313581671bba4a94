// `tandem bench store`: how fast one thread finds, copies and updates rows of a table. The ceiling
// is the same work on rows whose places are known. Also shows how a table grows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/terminal.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/memory/buffer.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/store/table.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/ids.h"
#include "trainer/bench/known_prefetch.h"
#include "trainer/cli/help_text.h"
#include "trainer/cli/process/failure.h"
#include "trainer/report/json.h"
#include "trainer/report/text_table.h"

namespace tandem::bench {

namespace {

using report::TextTable;

constexpr size_t kIdsOfPass = size_t{1} << 21;  // approximately
constexpr size_t kIdsOfInsert = 256;
constexpr float kRate = 0.01f;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The id of row number n. Ids are far apart, like hashed features.
uint64_t IdOf(uint64_t n) { return Fmix64(n); }

TableSpec SpecOf(uint32_t dim, SparseOptimizer optimizer, RowStorage storage) {
  TableSpec spec;
  spec.set_name("bench");
  spec.set_number(1);
  spec.set_dim(dim);
  spec.set_optimizer(optimizer);
  spec.set_epsilon(1e-8f);
  spec.set_initial_accumulator(0.1f);
  spec.set_storage(storage);
  return spec;
}

struct StoreFigures {
  std::string op, ids, storage = "f32";
  uint32_t dim = 0;
  uint64_t rows = 0;
  double rows_per_second = 0, ceiling_rows_per_second = 0;
  double bytes_per_second = 0;                // weights read, or weights and slots read and written
  double p50_us = 0, p99_us = 0, max_us = 0;  // one call
  double bytes_per_row = 0, field_bytes = 0;
  bool correct = true;
};

// Measures one operation on one table.
class StoreBench {
 public:
  // `distinct`: a call draws as many ids, and has each of them once.
  StoreBench(ps::Table& table, const StoreOptions& options, IdDistribution distribution,
             bool distinct)
      : table_(table),
        repetitions_(options.repetitions),
        dim_(table.spec().dim()),
        batch_(options.batch),
        num_calls_((kIdsOfPass + batch_ - 1) / batch_),
        optimizer_(ps::MakeSparseOptimizer(table.spec())),
        memory_(Buffer::Allocate(batch_ * dim_ * sizeof(float))),
        values_(static_cast<float*>(memory_->data()), batch_ * dim_) {
    std::fill(values_.begin(), values_.end(), 0.01f);
    IdSource source(options.rows, distribution, 0);
    for (size_t call = 0; call < num_calls_; ++call) {
      std::unordered_set<uint64_t> seen;
      for (size_t i = 0; i < batch_; ++i) {
        const uint64_t id = IdOf(source.Next(0));
        if (!distinct || seen.insert(id).second) ids_.push_back(id);
      }
      ends_.push_back(ids_.size());
    }
    for (const uint64_t id : ids_)
      places_.push_back(reinterpret_cast<char*>(table_.Find(id).header));
  }

  StoreFigures Gather() {
    StoreFigures figures = Measure(
        [this](size_t call) {
          table_.Pull(/*step=*/0, IdsOf(call), /*create=*/false, values_.data());
        },
        [this](size_t call, const Known& how) { GatherKnown(call, how); });
    figures.bytes_per_second = figures.rows_per_second * dim_ * sizeof(float);
    std::vector<float> known;
    for (size_t call : {size_t{0}, num_calls_ / 2, num_calls_ - 1}) {
      GatherKnown(call, kKnown[0]);
      known.assign(values_.begin(), values_.end());
      table_.Pull(/*step=*/0, IdsOf(call), /*create=*/false, values_.data());
      figures.correct &= absl::MakeConstSpan(known) == values_;
    }
    return figures;
  }

  StoreFigures Update() {
    uint64_t passes = 0;  // over all calls
    StoreFigures figures = Measure(
        [&](size_t call) {
          // As a server does: a pushed gradient is only kept, until its step is committed.
          table_.Accumulate(0, call, IdsOf(call), values_.data(), nullptr);
          table_.Commit(1, kRate, 1, /*skip=*/false);
          passes += call == 0;
        },
        [&](size_t call, const Known& how) {
          UpdateKnown(call, how);
          passes += call == 0;
        });
    figures.bytes_per_second =
        figures.rows_per_second * 2 * static_cast<double>(table_.layout().value_bytes());
    // Every pass updates a row once in each call that has its id.
    std::unordered_map<uint64_t, uint64_t> times;
    for (const uint64_t id : ids_) ++times[id];
    for (size_t i = 0; i < ids_.size(); i += 1009) {
      figures.correct &= table_.Find(ids_[i]).header->version - versions_[i] ==
                         static_cast<uint32_t>(passes * times[ids_[i]]);
    }
    return figures;
  }

 private:
  // How known rows are prefetched: the number of ids ahead, and the cache, first or second. The
  // best variant counts.
  struct Known {
    size_t ahead;
    bool near;
  };
  static constexpr Known kKnown[] = {{16, true},  {24, true},  {32, true},
                                     {16, false}, {32, false}, {64, false}};

  absl::Span<const uint64_t> IdsOf(size_t call) const {
    return {ids_.data() + BeginOf(call), ends_[call] - BeginOf(call)};
  }
  size_t BeginOf(size_t call) const { return call == 0 ? 0 : ends_[call - 1]; }

  // Calls body(fetch, dim). fetch(place) prefetches the memory of a record, from `offset` on, in
  // the way of `how`. For the usual dims, dim is a compile-time constant.
  template <class Body>
  void WithFetch(const Known& how, size_t offset, size_t bytes, const Body& body) const {
    const auto with_dim = [&](auto fetch) {
      switch (dim_) {
        case 16:
          return body(fetch, std::integral_constant<size_t, 16>());
        case 64:
          return body(fetch, std::integral_constant<size_t, 64>());
        case 128:
          return body(fetch, std::integral_constant<size_t, 128>());
        default:
          return body(fetch, size_t{dim_});
      }
    };
    const KnownPrefetch lines(table_.layout().stride(), offset, bytes);
    if (how.near)
      with_dim([=](const char* at) __attribute__((always_inline)) {
        lines.Into<KnownPrefetch::kFirstCache>(at + offset);
      });
    else
      with_dim([=](const char* at) __attribute__((always_inline)) {
        lines.Into<KnownPrefetch::kSecondCache>(at + offset);
      });
  }

  void GatherKnown(size_t call, const Known& how) {
    char* const* const places = places_.data() + BeginOf(call);
    const size_t offset = table_.layout().weights_offset(), ahead = how.ahead,
                 batch = IdsOf(call).size();
    float* const out = values_.data();
    WithFetch(how, offset, dim_ * sizeof(float), [=](auto fetch, auto dim) {
      kernels::Vectorised([=] {
        for (size_t i = 0; i < batch; ++i) {
          if (i + ahead < batch) fetch(places[i + ahead]);
          ps::CopyBytes(out + i * dim, places[i] + offset, dim * sizeof(float));
        }
      });
    });
  }

  void UpdateKnown(size_t call, const Known& how) {
    constexpr size_t kAtOnce = 32;  // rows that the optimizer gets at once
    char* const* const places = places_.data() + BeginOf(call);
    const size_t batch = IdsOf(call).size();
    WithFetch(how, 0, table_.layout().stride(), [&](auto fetch, size_t dim) {
      ps::RowUpdate updates[kAtOnce];
      for (size_t begin = 0; begin < batch; begin += kAtOnce) {
        const size_t count = std::min(kAtOnce, batch - begin);
        for (size_t k = 0; k < count; ++k) {
          const size_t i = begin + k;
          if (i + how.ahead < batch) fetch(places[i + how.ahead]);
          const ps::RowView row = table_.layout().View(places[i]);
          updates[k] = {reinterpret_cast<float*>(row.weights), row.slots, values_.data() + i * dim,
                        1};
        }
        optimizer_->ApplyRows({updates, count}, static_cast<uint32_t>(dim), 1, kRate);
        for (size_t k = 0; k < count; ++k) {
          ps::RowHeader* const header = table_.layout().View(places[begin + k]).header;
          header->last_step = 1;
          header->frequency += 1;
          header->version += 1;
        }
      }
    });
  }

  // Reports medians over calls. Interruptions by the host hit few calls and show in the p99. The
  // two kinds alternate call by call, so both see the same moments of the machine. Neither the
  // index nor the rows stay untouched long enough for a host to unmap them as idle. The known rows
  // are those of another call, half a pass away, so they have left every cache.
  template <class FoundCall, class KnownCall>
  StoreFigures Measure(const FoundCall& found, const KnownCall& known) {
    versions_.clear();
    for (const char* place : places_)
      versions_.push_back(reinterpret_cast<const ps::RowHeader*>(place)->version);
    std::vector<double> call_seconds, known_seconds[std::size(kKnown)];
    for (uint32_t repetition = 0; repetition < repetitions_; ++repetition) {
      for (size_t k = 0; k < std::size(kKnown); ++k) {
        for (size_t call = 0; call < num_calls_; ++call) {
          const double begin = Now();
          found(call);
          const double between = Now();
          known((call + num_calls_ / 2) % num_calls_, kKnown[k]);
          known_seconds[k].push_back(Now() - between);
          call_seconds.push_back(between - begin);
        }
      }
    }
    StoreFigures figures;
    const double rows_of_call = static_cast<double>(ids_.size()) /
                                static_cast<double>(num_calls_);  // about the same in all
    figures.rows_per_second = rows_of_call / Median(call_seconds);
    for (const auto& seconds_of_kind : known_seconds) {
      figures.ceiling_rows_per_second =
          std::max(figures.ceiling_rows_per_second, rows_of_call / Median(seconds_of_kind));
    }
    figures.p50_us = Quantile(call_seconds, 0.5) * 1e6;
    figures.p99_us = Quantile(call_seconds, 0.99) * 1e6;
    figures.max_us = Quantile(call_seconds, 1) * 1e6;
    return figures;
  }

  ps::Table& table_;
  const uint32_t repetitions_, dim_;
  const size_t batch_, num_calls_;
  const std::unique_ptr<ps::SparseOptimizer> optimizer_;
  std::vector<uint64_t> ids_;
  std::vector<size_t> ends_;        // [call]: where its ids end
  std::vector<char*> places_;       // the ids' records
  std::vector<uint32_t> versions_;  // versions of their rows before the passes
  const std::shared_ptr<Buffer> memory_;
  // [batch, dim]: pulled rows, or gradients; aligned to a cache line, like in messages.
  const absl::Span<float> values_;
};

void Fill(ps::Table& table, uint64_t rows) {
  constexpr size_t kIdsOfCall = 4096;
  std::vector<uint64_t> ids;
  std::vector<float> values(kIdsOfCall * table.spec().dim());
  for (uint64_t n = 1; n <= rows; n += ids.size()) {
    ids.clear();
    while (ids.size() < kIdsOfCall && n + ids.size() <= rows) ids.push_back(IdOf(n + ids.size()));
    table.Pull(/*step=*/0, ids, /*create=*/true, values.data());
  }
}

// Inserts new rows in calls of kIdsOfInsert until the table occupies `bytes`.
StoreFigures Grow(uint32_t dim, double bytes) {
  ps::Table table(SpecOf(dim, SPARSE_ROWWISE_ADAGRAD, STORED_BF16));
  std::vector<uint64_t> ids(kIdsOfInsert);
  std::vector<float> values(kIdsOfInsert * dim);
  std::vector<double> call_seconds;
  const double begin = Now();
  uint64_t n = 0;
  while (static_cast<double>(table.memory_bytes()) < bytes) {
    for (uint64_t& id : ids) id = IdOf(++n);
    const double started = Now();
    table.Pull(/*step=*/0, ids, /*create=*/true, values.data());
    call_seconds.push_back(Now() - started);
  }
  StoreFigures figures;
  figures.op = "grow";
  figures.ids = "new";
  figures.storage = "bf16";
  figures.dim = dim;
  figures.rows = table.num_rows();
  figures.rows_per_second = static_cast<double>(table.num_rows()) / (Now() - begin);
  figures.p50_us = Quantile(call_seconds, 0.5) * 1e6;
  figures.p99_us = Quantile(call_seconds, 0.99) * 1e6;
  figures.max_us = Quantile(call_seconds, 1) * 1e6;
  figures.bytes_per_row =
      static_cast<double>(table.memory_bytes()) / static_cast<double>(table.num_rows());
  figures.field_bytes = static_cast<double>(table.layout().field_bytes());
  figures.correct = table.num_rows() == n;
  for (uint64_t each = 1; each <= n; each += 1 + n / 1000)
    figures.correct &= table.Find(IdOf(each)).header != nullptr;
  return figures;
}

void PrintHead(const StoreOptions& options) {
  const std::string text = absl::StrFormat(
      "One thread. known: the same rows, found beforehand, in the same run. GB/s: f32 weights read "
      "by gather, weights and slots read and written by updates. A call has %u ids; an update, "
      "which "
      "is a push and its commit, has each of them once; grow, which creates rows with bf16 weights "
      "and a row-wise Adagrad, has %d. Rates: of grow all the time it "
      "took, of others medians over all calls of %u repetitions. bytes: of memory a row, index "
      "included, and the sum of its fields.\n",
      options.batch, kIdsOfInsert, options.repetitions);
  std::printf("%s", cli::WrapHelp(text, cli::HelpColumns()).c_str());
}

TextTable MakeTable() {
  return TextTable({{"op", TextTable::LEFT, 7},
                    {"ids", TextTable::LEFT, 7},
                    {"dim", TextTable::RIGHT, 3},
                    {"rows", TextTable::RIGHT, 8},
                    {"M rows/s"},
                    {"known", TextTable::RIGHT, 6},
                    {"ratio"},
                    {"GB/s", TextTable::RIGHT, 5},
                    {"p50 us", TextTable::RIGHT, 7},
                    {"p99 us", TextTable::RIGHT, 7},
                    {"max us", TextTable::RIGHT, 7},
                    {"bytes"},
                    {"fields"}},
                   /*indent=*/0);
}

// Prints the lines that `table` has got, so that the reader sees each figure when it is measured.
void PrintLines(TextTable& table) {
  std::printf("%s", table.TakeLines(TerminalColumns()).c_str());
  std::fflush(stdout);
}

void Add(const StoreFigures& f, TextTable& table) {
  const double known = f.ceiling_rows_per_second;
  table.Add({f.op, f.ids, absl::StrCat(f.dim), absl::StrCat(f.rows),
             FigureText(f.rows_per_second * 1e-6, 2), FigureText(known * 1e-6, 2),
             FigureText(known > 0 ? f.rows_per_second / known : 0, 2),
             FigureText(f.bytes_per_second * 1e-9, 2), FigureText(f.p50_us, 1),
             FigureText(f.p99_us, 1), FigureText(f.max_us, 1), FigureText(f.bytes_per_row, 1),
             FigureText(f.field_bytes, 0)});
}

std::string JsonObject(const StoreFigures& f) {
  using report::NineDigits;
  nlohmann::ordered_json json{
      {"op", f.op},     {"ids", f.ids},         {"dim", f.dim},
      {"rows", f.rows}, {"storage", f.storage}, {"rows_per_second", NineDigits(f.rows_per_second)}};
  if (f.ceiling_rows_per_second > 0) {
    json["ceiling_rows_per_second"] = NineDigits(f.ceiling_rows_per_second);
    json["ratio"] = NineDigits(f.rows_per_second / f.ceiling_rows_per_second);
    json["gb_per_second"] = NineDigits(f.bytes_per_second * 1e-9);
  }
  json.update({{"p50_us", NineDigits(f.p50_us)},
               {"p99_us", NineDigits(f.p99_us)},
               {"max_us", NineDigits(f.max_us)},
               {"bytes_per_row", NineDigits(f.bytes_per_row)},
               {"field_bytes", NineDigits(f.field_bytes)},
               {"correct", f.correct}});
  return report::JsonText(json);
}

// ResourceExhausted unless the machine has that much memory available.
absl::Status CheckMemory(double bytes, const std::string& what) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:" && bytes > kilobytes * 1024 * 0.95) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s takes %.1f GB of memory; this machine has %.1f to give", what,
                          bytes * 1e-9, kilobytes * 1024e-9));
    }
    std::getline(file, name);
  }
  return absl::OkStatus();
}

struct Case {
  std::string op;
  uint32_t dim;
  std::vector<std::string> ids;
};

std::vector<Case> Plan(const StoreOptions& options) {
  const auto or_all = [](const auto& asked, auto all) { return asked.empty() ? all : asked; };
  std::vector<Case> plan;
  for (const std::string& op :
       or_all(options.ops, std::vector<std::string>{"gather", "sgd", "adagrad"})) {
    const std::vector<uint32_t> dims =
        op == "grow" ? std::vector<uint32_t>{16} : std::vector<uint32_t>{64, 16, 128};
    for (const uint32_t dim : or_all(options.dims, dims)) {
      plan.push_back({op, dim, or_all(options.ids, std::vector<std::string>{"uniform", "zipf"})});
    }
  }
  return plan;
}

absl::StatusOr<std::vector<StoreFigures>> RunCase(const Case& one, const StoreOptions& options) {
  if (one.op == "grow") {
    RETURN_IF_ERROR(CheckMemory(options.memory_gb * 1e9 * 1.05, "--memory"));
    return std::vector<StoreFigures>{Grow(one.dim, options.memory_gb * 1e9)};
  }
  ps::Table table(SpecOf(one.dim, one.op == "adagrad" ? SPARSE_ADAGRAD : SPARSE_SGD, STORED_F32));
  RETURN_IF_ERROR(CheckMemory(
      static_cast<double>(options.rows) * static_cast<double>(table.layout().stride() + 14) * 1.1,
      absl::StrCat("--op ", one.op, " with --rows ", options.rows, " and --dim ", one.dim)));
  Fill(table, options.rows);
  std::vector<StoreFigures> all;
  for (const std::string& ids : one.ids) {
    StoreBench bench(table, options, ids == "zipf" ? IdDistribution::ZIPF : IdDistribution::UNIFORM,
                     /*distinct=*/one.op != "gather");
    StoreFigures figures = one.op == "gather" ? bench.Gather() : bench.Update();
    figures.op = one.op;
    figures.ids = ids;
    figures.dim = one.dim;
    figures.rows = options.rows;
    figures.bytes_per_row =
        static_cast<double>(table.memory_bytes()) / static_cast<double>(table.num_rows());
    figures.field_bytes = static_cast<double>(table.layout().field_bytes());
    all.push_back(figures);
  }
  return all;
}

absl::Status Run(const StoreOptions& options, bool* all_correct) {
  FigureFile json(options.json);
  RETURN_IF_ERROR(json.status());
  PrintHead(options);
  TextTable table = MakeTable();
  PrintLines(table);
  std::vector<std::string> objects;
  for (const Case& one : Plan(options)) {
    ASSIGN_OR_RETURN(const std::vector<StoreFigures> all, RunCase(one, options));
    for (const StoreFigures& figures : all) {
      Add(figures, table);
      PrintLines(table);
      if (!figures.correct) std::printf("FAIL: rows are not what was done to them\n");
      objects.push_back(JsonObject(figures));
      *all_correct &= figures.correct;
    }
  }
  return json.Write(objects);
}

}  // namespace

int BenchStore(const StoreOptions& options) {
  bool all_correct = true;
  const absl::Status status = Run(options, &all_correct);
  if (!status.ok()) return cli::ReportError(status);
  return all_correct ? 0 : 1;
}

}  // namespace tandem::bench
