#include "trainer/bench/pull_push_client.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "kernels/base/radix_sort.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "ps/wire/row_index.h"
#include "ps/wire/wire_codec.h"
#include "trainer/bench/batches.h"
#include "trainer/bench/members/members.h"
#include "trainer/bench/pull_push_replay.h"
#include "trainer/comm/host/cpu_group.h"
#include "trainer/parallel/data_parallel/ddp.h"

namespace tandem::bench {

namespace {

constexpr uint32_t kTable = 1;
constexpr uint64_t kMaxRowsPerFirstPush = uint64_t{1} << 17;
// The ids of a part. Their rows are 4 MB at dim 64, so they are still in the caches when gradients
// are made.
constexpr size_t kPartIds = 16384;
constexpr size_t kSampledRows = 512;  // compared with the expected sums
constexpr absl::Duration kRawDuration = absl::Milliseconds(150);

std::vector<std::string> ServerAddresses(const rpc::Assignment& assignment) {
  std::vector<std::string> addresses;
  for (const rpc::Member& member : assignment.MembersOf(PS)) addresses.push_back(member.address);
  return addresses;
}

TableSpec TableOf(const PullPushCase& bench) {
  TableSpec spec;
  spec.set_name("rows");
  spec.set_number(kTable);
  spec.set_dim(bench.dim());
  spec.set_optimizer(SPARSE_SGD);
  if (IsHybrid(bench)) spec.set_init_stddev(1);
  return spec;
}

ConsistencySpec ConsistencyOf(const PullPushCase& bench) {
  ConsistencySpec consistency;
  if (bench.permits() <= 1) return consistency;
  consistency.set_mode(ConsistencySpec::PERMIT);
  consistency.set_staleness(bench.permits());
  return consistency;
}

std::unique_ptr<ps::RemoteClient> MakeClient(const PullPushCase& bench,
                                             const rpc::MasterClient& master, WireFormat wire) {
  return std::make_unique<ps::RemoteClient>(
      ServerAddresses(master.assignment()), ps::Router::FromShardMap(master.assignment().shard_map),
      master.MakeHeader(), bench.clients(),
      ps::RemoteClientOptions{.timeout = kBenchTimeout,
                              .consistency = ConsistencyOf(bench),
                              .wire = wire,
                              .shared_memory = bench.path() == PullPushCase::SHM,
                              .credentials = master.credentials()});
}

absl::Status Wait(const rpc::Future<rpc::Done>& future) {
  return future.Wait(absl::Now() + kBenchTimeout + absl::Seconds(1)).status();
}
absl::Status Wait(const std::vector<rpc::Future<rpc::Done>>& calls) {
  for (const auto& call : calls) RETURN_IF_ERROR(Wait(call));
  return absl::OkStatus();
}

std::shared_ptr<const float> Share(std::vector<float> values) {
  const auto shared = std::make_shared<const std::vector<float>>(std::move(values));
  return {shared, shared->data()};
}

}  // namespace

PullPushClient::PullPushClient(const PullPushCase& bench, rpc::MasterClient& master)
    : bench_(bench),
      master_(master),
      rank_(master.assignment().rank),
      table_(TableOf(bench)),
      pattern_(GradientPattern(bench.dim())),
      client_(MakeClient(bench, master, bench.wire())),
      raw_(std::make_unique<RawBytesClient>(ServerAddresses(master.assignment()),
                                            bench.path() == PullPushCase::SHM,
                                            master.credentials())) {}

absl::Status PullPushClient::Barrier() {
  const std::string key = absl::StrCat("meeting ", num_meetings_++);
  RETURN_IF_ERROR(master_.store().Add(key, 1).status());
  return master_.store().Wait(key, bench_.clients(), absl::Now() + kBenchTimeout);
}

// Rows begin at zero, and the first steps push the negated first weights. Rows that a net trains
// begin at random.
absl::Status PullPushClient::MakeRows() {
  const uint64_t share = (bench_.rows() + bench_.clients() - 1) / bench_.clients();
  const uint64_t begin = std::min(bench_.rows(), share * rank_),
                 end = std::min(bench_.rows(), begin + share);
  // Not larger than the timed steps, because a table keeps the memory of its largest step.
  const uint64_t num_rows =
      std::min(kMaxRowsPerFirstPush, static_cast<uint64_t>(IdsPerStep(bench_)));
  for (uint64_t done = 0; done < share; done += num_rows) {
    lookup_.ids.clear();
    std::vector<float> gradients;
    for (uint64_t row = begin + done; row < std::min(end, begin + done + num_rows); ++row) {
      lookup_.ids.push_back(row + 1);
      for (uint32_t column = 0; column < bench_.dim(); ++column)
        gradients.push_back(-FirstWeight(row + 1, column));
    }
    if (IsHybrid(bench_)) {
      RETURN_IF_ERROR(Wait(Pull(0, lookup_.ids).done));
    } else {
      RETURN_IF_ERROR(Wait(CommitBehind({Push(lookup_.ids, Share(std::move(gradients)))})));
    }
  }
  return absl::OkStatus();
}

void PullPushClient::MakeReadyGradients() {
  if (bench_.mode() == PullPushCase::POOLED) {
    for (size_t offset = 0; offset <= IdsPerStep(bench_); offset += kSampleIds)
      offsets_.push_back(offset);
    pooled_.resize(bench_.batch() * bench_.dim());
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> ready;
      for (size_t i = 0; i < bench_.batch() * bench_.dim(); ++i)
        ready.push_back(sign * pattern_[i % bench_.dim()]);
      ready_gradients_.push_back(Share(std::move(ready)));
    }
  }
  if (bench_.mode() != PullPushCase::PUSH) return;
  for (const auto& batch : batches_) {
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> ready;
      for (const uint64_t id : batch) {
        for (uint32_t column = 0; column < bench_.dim(); ++column)
          ready.push_back(sign * pattern_[id % 4 + column]);
      }
      ready_gradients_.push_back(Share(std::move(ready)));
    }
  }
}

absl::Status PullPushClient::MakeReplica() {
  const comm::CpuGroupOptions options{.store = &master_.store(),
                                      .token = master_.assignment().job_token,
                                      .name = "dp",
                                      .rank = static_cast<int>(rank_),
                                      .size = static_cast<int>(bench_.clients()),
                                      .timeout = kBenchTimeout};
  ASSIGN_OR_RETURN(group_, comm::CpuGroup::Create(options, absl::Now() + kBenchTimeout));
  ASSIGN_OR_RETURN(replica_,
                   HybridReplica::Create(bench_, kTable, ps::ClientsOf(*client_), group_.get()));
  return absl::OkStatus();
}

void PullPushClient::Merge(const std::vector<uint64_t>& batch, Lookup* lookup) {
  sorted_ = batch;
  RadixSort(&sorted_, &scratch_, [](uint64_t id) { return id; });
  lookup->ids.clear();
  lookup->counts.clear();
  for (const uint64_t id : sorted_) {
    if (lookup->ids.empty() || lookup->ids.back() != id) {
      lookup->ids.push_back(id);
      lookup->counts.push_back(0);
    }
    ++lookup->counts.back();
  }
}

PullPushClient::Gradients PullPushClient::MakeGradients(size_t begin, size_t end,
                                                        const float* row) {
  const size_t dim = bench_.dim();
  const auto memory = Buffer::Allocate((end - begin) * dim * sizeof(float));
  auto* gradient = static_cast<float*>(memory->data());
  const Gradients gradients(memory, gradient);
  for (size_t i = begin; i < end; ++i) {
    const float count = static_cast<float>(std::min(lookup_.counts[i], kMostCounted));
    const float* const pattern = pattern_.data() + lookup_.ids[i] % 4;
    for (size_t column = 0; column < dim; ++column)
      gradient[column] = std::copysign(count * pattern[column], row[column]);
    row += dim;
    gradient += dim;
  }
  return gradients;
}

PullPushClient::PulledRows PullPushClient::Pull(uint64_t step, absl::Span<const uint64_t> ids) {
  const auto memory = Buffer::Allocate(ids.size() * bench_.dim() * sizeof(float));
  auto* const rows = static_cast<float*>(memory->data());
  const auto done =
      client_->Pull(step, /*create=*/true, {{.table = kTable, .ids = ids, .rows = rows}});
  done.OnReady([memory](const absl::StatusOr<rpc::Done>&) {});
  return {memory, done};
}

void PullPushClient::PullParts(uint64_t step, Lookup* lookup) {
  lookup->rows.clear();
  const auto ids = absl::MakeConstSpan(lookup->ids);
  for (size_t begin = 0; begin < ids.size(); begin += kPartIds)
    lookup->rows.push_back(Pull(step, ids.subspan(begin, kPartIds)));
}

rpc::Future<rpc::Done> PullPushClient::Push(absl::Span<const uint64_t> ids,
                                            const Gradients& gradients) {
  const auto pushed = client_->Push(next_step_, /*slice=*/0,
                                    {{.table = kTable, .ids = ids, .gradients = gradients.get()}});
  pushed.OnReady([gradients](const absl::StatusOr<rpc::Done>&) {});
  return pushed;
}

ps::CommitArgs PullPushClient::NextCommit() {
  return {.step = next_step_++, .rates = {{.table = kTable, .learning_rate = 1}}};
}

PullPushClient::Calls PullPushClient::CommitBehind(Calls pushes) {
  pushes.push_back(client_->Commit(NextCommit()));
  return pushes;
}

absl::Status PullPushClient::StepUnderWay(bool another_follows, PullPushRepetition* times) {
  const bool pull = bench_.mode() == PullPushCase::PULL;
  const size_t number = num_steps_ % kNumBatches,
               most_under_way = another_follows ? bench_.permits() - 1 : 0;
  const std::vector<uint64_t>& batch = batches_[number];
  Stopwatch watch;
  if (pull) {
    pulls_under_way_.push_back(Pull(next_step_, batch));
  } else {
    pushes_under_way_.push_back(CommitBehind(
        {Push(batch, ready_gradients_[2 * number + (PushSign(num_steps_) < 0 ? 1 : 0)])}));
  }
  for (; pulls_under_way_.size() > most_under_way; pulls_under_way_.pop_front()) {
    last_pulled_ = pulls_under_way_.front();
    RETURN_IF_ERROR(Wait(last_pulled_.done));
  }
  for (; pushes_under_way_.size() > most_under_way; pushes_under_way_.pop_front()) {
    RETURN_IF_ERROR(Wait(pushes_under_way_.front()));
  }
  const double seconds = watch.Lap(), bytes = RowBytes(bench_, batch.size());
  if (pull) {
    times->set_pull_seconds(times->pull_seconds() + seconds);
    times->set_pull_bytes(times->pull_bytes() + bytes);
  } else {
    times->set_push_seconds(times->push_seconds() + seconds);
    times->set_push_bytes(times->push_bytes() + bytes);
  }
  ++num_steps_;
  return absl::OkStatus();
}

absl::Status PullPushClient::StepPooled(PullPushRepetition* times) {
  const std::vector<uint64_t>& batch = batches_[num_steps_ % kNumBatches];
  const ps::Bags bags{.table = kTable, .ids = batch, .offsets = offsets_};
  const double bytes = PooledBytes(bench_);
  Stopwatch watch;
  RETURN_IF_ERROR(
      Wait(client_->PullPooled(next_step_, /*create=*/true, bags, bench_.dim(), pooled_.data())));
  times->set_pull_seconds(times->pull_seconds() + watch.Lap());
  times->set_pull_bytes(times->pull_bytes() + bytes);
  const float* gradients = ready_gradients_[PushSign(num_steps_) < 0 ? 1 : 0].get();
  RETURN_IF_ERROR(Wait(
      CommitBehind({client_->PushPooled(next_step_, /*slice=*/0, bags, bench_.dim(), gradients)})));
  times->set_push_seconds(times->push_seconds() + watch.Lap());
  times->set_push_bytes(times->push_bytes() + bytes);
  ++num_steps_;
  return absl::OkStatus();
}

absl::Status PullPushClient::StepInParts(bool another_follows, PullPushRepetition* times) {
  Stopwatch watch;
  if (!pulled_ahead_) Merge(batches_[num_steps_ % kNumBatches], &lookup_);
  const double bytes = RowBytes(bench_, lookup_.ids.size());
  watch.Lap();
  if (!pulled_ahead_) PullParts(next_step_, &lookup_);
  double pulling = 0, pushing = 0;
  Calls pushes;
  for (size_t begin = 0; begin < lookup_.ids.size(); begin += kPartIds) {
    const PulledRows pulled = std::exchange(lookup_.rows[begin / kPartIds], {});
    RETURN_IF_ERROR(Wait(pulled.done));
    pulling += watch.Lap();
    const auto ids = absl::MakeConstSpan(lookup_.ids).subspan(begin, kPartIds);
    const Gradients gradients = MakeGradients(begin, begin + ids.size(), pulled.rows());
    watch.Lap();
    pushes.push_back(Push(ids, gradients));
    pushing += watch.Lap();
  }
  const Calls pushed = CommitBehind(std::move(pushes));
  pulled_ahead_ = another_follows;
  if (another_follows) {
    Merge(batches_[(num_steps_ + 1) % kNumBatches], &next_);
    PullParts(next_step_, &next_);
  }
  RETURN_IF_ERROR(Wait(pushed));
  if (another_follows) std::swap(lookup_, next_);
  times->set_pull_seconds(times->pull_seconds() + pulling);
  times->set_pull_bytes(times->pull_bytes() + bytes);
  times->set_push_seconds(times->push_seconds() + pushing + watch.Lap());
  times->set_push_bytes(times->push_bytes() + bytes);
  ++num_steps_;
  return absl::OkStatus();
}

absl::Status PullPushClient::Step(bool another_follows, PullPushRepetition* times) {
  if (IsHybrid(bench_)) return replica_->Step(another_follows, times);
  if (bench_.mode() == PullPushCase::POOLED) return StepPooled(times);
  if (bench_.mode() == PullPushCase::PULL_PUSH) return StepInParts(another_follows, times);
  return StepUnderWay(another_follows, times);
}

// Warms up. Client 0 chooses the number of steps of a repetition.
absl::StatusOr<uint64_t> PullPushClient::ChooseSteps() {
  PullPushRepetition ignored;
  Stopwatch watch;
  for (int step = 0; step < 2 * kNumBatches; ++step) {
    if (step == kNumBatches) watch.Lap();
    RETURN_IF_ERROR(Step(/*another_follows=*/false, &ignored));
  }
  if (bench_.steps() > 0) return bench_.steps();
  if (rank_ == 0) {
    const double steps = bench_.seconds() / (watch.Seconds() / kNumBatches);
    RETURN_IF_ERROR(master_.store().Set(
        "steps", absl::StrCat(std::max<uint64_t>(1, static_cast<uint64_t>(steps)))));
  }
  ASSIGN_OR_RETURN(const std::string steps,
                   master_.store().Get("steps", absl::Now() + kBenchTimeout));
  return std::stoull(steps);
}

absl::Status PullPushClient::MeasureRaw(PullPushRepetition* repetition) {
  using Direction = RawBytesClient::Direction;
  for (const int window : kRawWindows) {
    for (const Direction direction : {Direction::PULL, Direction::PUSH}) {
      const bool pull = direction == Direction::PULL;
      if (bench_.mode() == (pull ? PullPushCase::PUSH : PullPushCase::PULL)) continue;
      RETURN_IF_ERROR(Barrier());
      ASSIGN_OR_RETURN(const double rate, raw_->Measure(direction, window, kRawDuration));
      (pull ? repetition->mutable_raw_pull() : repetition->mutable_raw_push())->Add(rate);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PullPushRepetition> PullPushClient::Repeat(PullPushFigures* figures) {
  PullPushRepetition repetition;
  RETURN_IF_ERROR(MeasureRaw(&repetition));
  RETURN_IF_ERROR(Barrier());
  Stopwatch watch;
  repetition.set_begin(MonotonicSeconds());
  for (uint64_t step = 0; step < figures->steps(); ++step) {
    RETURN_IF_ERROR(Step(step + 1 < figures->steps(), &repetition));
    figures->add_step_seconds(watch.Lap());
  }
  repetition.set_end(MonotonicSeconds());
  return repetition;
}

// Rounds rows like a pull does.
void PullPushClient::RoundAsPulled(absl::Span<float> rows) const {
  std::vector<char> wire(ps::WireBytes(bench_.wire(), bench_.dim()));
  for (float* row = rows.data(); row != rows.data() + rows.size(); row += bench_.dim()) {
    ps::EncodeRow(bench_.wire(), row, bench_.dim(), wire.data());
    ps::DecodeRow(bench_.wire(), wire.data(), bench_.dim(), row);
  }
}

std::vector<uint64_t> PullPushClient::SampleIds() const {
  ps::RowIndex seen;
  std::vector<uint64_t> sampled;
  for (size_t i = 0; i < kSampledRows; ++i) {
    const auto& batch = batches_[i % kNumBatches];
    const uint64_t id = i % 2 == 0 ? batch[(i * 7919) % batch.size()]
                                   : 1 + RandomBelow({2, rank_}, 0, i, bench_.rows());
    if (seen.FindOrInsert(id, 0).second) sampled.push_back(id);
  }
  return sampled;
}

// Describes the first wrong row of a sample; empty: none. With int8 the expected rows are unknown,
// because pushes were rounded. PULL also checks the last pull, because no gradient shows what was
// pulled.
absl::StatusOr<std::string> PullPushClient::FindWrongRow() {
  const auto compare = [this](const std::vector<uint64_t>& ids, const float* rows) -> std::string {
    if (bench_.wire() == WIRE_INT8) return "";
    std::vector<float> expected = ExpectedRows(bench_, ids, num_steps_);
    RoundAsPulled(absl::MakeSpan(expected));
    for (size_t i = 0; i < expected.size(); ++i) {
      if (rows[i] == expected[i]) continue;
      return absl::StrCat("row ", ids[i / bench_.dim()], " column ", i % bench_.dim(), " is ",
                          rows[i], ", the steps add up to ", expected[i]);
    }
    return "";
  };
  if (bench_.mode() == PullPushCase::PULL) {
    const auto& last_batch = batches_[(num_steps_ - 1) % kNumBatches];
    if (std::string wrong = compare(last_batch, last_pulled_.rows()); !wrong.empty()) return wrong;
  }
  const std::vector<uint64_t> sampled = SampleIds();
  std::vector<float> rows(sampled.size() * bench_.dim());
  RETURN_IF_ERROR(Wait(client_->Pull(0, /*create=*/false,
                                     {{.table = kTable, .ids = sampled, .rows = rows.data()}})));
  return compare(sampled, rows.data());
}

absl::StatusOr<std::string> PullPushClient::FindDifference() {
  const absl::Status equal =
      parallel::VerifyEqual(*group_, absl::Uint128Low64(replica_->DenseHash()), "dense weights",
                            absl::Now() + kBenchTimeout);
  if (absl::IsInternal(equal)) return std::string(equal.message());
  RETURN_IF_ERROR(equal);
  if (rank_ != 0) return std::string();
  const auto rows = MakeClient(bench_, master_, WIRE_F32);
  RETURN_IF_ERROR(rows->CreateTables({table_}, kBenchTimeout));
  return CompareWithReplay(bench_, table_, *replica_, ps::ClientsOf(*rows), SampleIds());
}

absl::StatusOr<PullPushFigures> PullPushClient::Run() {
  RETURN_IF_ERROR(client_->CreateTables({table_}, kBenchTimeout));
  RETURN_IF_ERROR(MakeRows());
  batches_ = MakeBatches(bench_, rank_);
  MakeReadyGradients();
  if (IsHybrid(bench_)) RETURN_IF_ERROR(MakeReplica());
  PullPushFigures figures;
  figures.set_ids_per_step(IdsPerStep(bench_));
  RETURN_IF_ERROR(Barrier());
  ASSIGN_OR_RETURN(const uint64_t steps, ChooseSteps());
  figures.set_steps(steps);
  for (uint32_t i = 0; i < bench_.repetitions(); ++i) {
    ASSIGN_OR_RETURN(*figures.add_repetitions(), Repeat(&figures));
  }
  RETURN_IF_ERROR(Barrier());
  ASSIGN_OR_RETURN(*figures.mutable_wrong(), IsHybrid(bench_) ? FindDifference() : FindWrongRow());
  return figures;
}

}  // namespace tandem::bench
