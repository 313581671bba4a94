#include "trainer/parallel/served/served_parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/status_macros.h"
#include "kernels/cast.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace tandem::parallel {

namespace {

constexpr size_t kChunkBytes = kChunk * sizeof(float);
// Bytes of a bucket: some messages for each of a few servers.
constexpr size_t kBucketBytes = 4 << 20;

// Calls visit(chunk of the bucket, column, element, count) for each run of a member's elements
// within one chunk.
template <class Visit>
void ForEachRun(const GradientBuckets::Member& member, const Visit& visit) {
  const size_t begin = member.offset / sizeof(float),
               size = static_cast<size_t>(member.parameter->shape().num_elements());
  for (size_t element = 0; element < size;) {
    const size_t column = (begin + element) % kChunk,
                 count = std::min(size - element, kChunk - column);
    visit((begin + element) / kChunk, column, element, count);
    element += count;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedParameters>> ServedParameters::Create(
    ps::RowClient* rows, ps::TableAdmin* admin, ParameterSet* parameters,
    const std::vector<Part>& parts, sparse::StepPushes* pushes, Stream* stream) {
  TANDEM_CHECK(parameters->dtype() == DType::F32 && !parameters->device().is_cuda());
  std::unique_ptr<ServedParameters> made(new ServedParameters(rows, admin, pushes, stream));
  made->parameters_ = parameters;
  for (const Part& part : parts) {
    Table& table = *made->tables_.emplace_back(std::make_unique<Table>());
    table.number = part.table;
    ASSIGN_OR_RETURN(
        table.gradients,
        GradientBuckets::Create(
            *parameters,
            LayOut(part.parameters, {.bucket_bytes = kBucketBytes, .unit_bytes = kChunkBytes}),
            stream, {}, [made = made.get(), &table](Context& context, size_t bucket) {
              made->Push(context, table, bucket);
            }));
    for (const GradientBuckets::Bucket& bucket : table.gradients->buckets()) {
      auto ids = std::make_shared<std::vector<uint64_t>>(bucket.memory->num_bytes() / kChunkBytes);
      for (uint64_t& id : *ids) {
        id = table.ids.size() + 1;
        table.ids.push_back(id);
      }
      table.bucket_ids.push_back(std::move(ids));
    }
    table.weights = Buffer::Allocate(table.ids.size() * kChunkBytes);
  }
  return made;
}

ServedParameters::~ServedParameters() {
  // After a failure the pull completes when the client is aborted, so the wait ends.
  if (pulled_.valid()) pulled_.Wait(absl::InfiniteFuture()).IgnoreError();
}

template <class Visit>
absl::Status ServedParameters::ForEachBucket(const Visit& visit) const {
  for (const auto& table : tables_) {
    for (size_t b = 0; b < table->bucket_ids.size(); ++b) RETURN_IF_ERROR(visit(*table, b));
  }
  return absl::OkStatus();
}

std::vector<float*> ServedParameters::ArraysOf(const optim::DenseState::Entry& entry) {
  std::vector<float*> arrays = {entry.value.data<float>()};
  for (const Tensor& slot : entry.slots) arrays.push_back(slot.data<float>());
  return arrays;
}

size_t ServedParameters::PlaceOf(const Parameter* parameter) const {
  const auto& all = parameters_->all();
  const auto place = std::find_if(all.begin(), all.end(),
                                  [=](const auto& other) { return other.get() == parameter; });
  return static_cast<size_t>(place - all.begin());
}

void ServedParameters::AddEntries(optim::DenseState* state) const {
  for (const auto& table : tables_) {
    for (const GradientBuckets::Bucket& bucket : table->gradients->buckets()) {
      for (const GradientBuckets::Member& member : bucket.members) {
        optim::DenseState::Entry& entry = state->entries[PlaceOf(member.parameter)];
        entry = {0, Tensor::Zeros(member.parameter->shape(), DType::F32), {}};
        for (size_t s = 0; s < state->slot_names.size(); ++s)
          entry.slots.push_back(Tensor::Zeros(member.parameter->shape(), DType::F32));
      }
    }
  }
}

absl::Status ServedParameters::WriteState(const optim::DenseState* state,
                                          absl::Time deadline) const {
  const size_t width = kChunk * (1 + (state == nullptr ? 0 : state->slot_names.size()));
  return ForEachBucket([&](const Table& table, size_t b) {
    const std::vector<uint64_t>& ids = *table.bucket_ids[b];
    std::vector<float> rows(ids.size() * width);
    for (const GradientBuckets::Member& member : table.gradients->buckets()[b].members) {
      const std::vector<float*> arrays = ArraysOf(
          state == nullptr ? optim::DenseState::Entry{0, member.parameter->variable.value(), {}}
                           : state->entries[PlaceOf(member.parameter)]);
      ForEachRun(member, [&](size_t chunk, size_t column, size_t element, size_t count) {
        for (size_t a = 0; a < arrays.size(); ++a) {
          std::memcpy(&rows[chunk * width + a * kChunk + column], arrays[a] + element,
                      count * sizeof(float));
        }
      });
    }
    return admin_->Assign({table.number, ids, width, rows.data()}, deadline);
  });
}

absl::Status ServedParameters::ReadState(optim::DenseState* state, absl::Time deadline) const {
  const size_t width = kChunk * (1 + state->slot_names.size());
  return ForEachBucket([&](const Table& table, size_t b) {
    const std::vector<uint64_t>& ids = *table.bucket_ids[b];
    std::vector<float> rows(ids.size() * width);
    RETURN_IF_ERROR(admin_->Read({table.number, ids, width, rows.data()}, deadline));
    for (const GradientBuckets::Member& member : table.gradients->buckets()[b].members) {
      const std::vector<float*> arrays = ArraysOf(state->entries[PlaceOf(member.parameter)]);
      ForEachRun(member, [&](size_t chunk, size_t column, size_t element, size_t count) {
        for (size_t a = 0; a < arrays.size(); ++a) {
          std::memcpy(arrays[a] + element, &rows[chunk * width + a * kChunk + column],
                      count * sizeof(float));
        }
      });
    }
    return absl::OkStatus();
  });
}

void ServedParameters::PullWeights(uint64_t step) {
  std::vector<ps::PullSegment> segments;
  for (const auto& table : tables_)
    segments.push_back({table->number, table->ids, static_cast<float*>(table->weights->data())});
  pulled_ = rows_->Pull(step, /*create=*/false, std::move(segments));
}

absl::Status ServedParameters::AwaitWeights(absl::Time deadline) {
  if (!pulled_.valid()) return absl::OkStatus();
  RETURN_IF_ERROR(pulled_.Wait(deadline).status());
  pulled_ = rpc::Future<rpc::Done>();
  ShowWeights();
  return absl::OkStatus();
}

void ServedParameters::ShowWeights() {
  for (const auto& table : tables_) {
    size_t begin = 0;  // byte offset of the bucket in the weights
    for (const GradientBuckets::Bucket& bucket : table->gradients->buckets()) {
      for (const GradientBuckets::Member& member : bucket.members) {
        const Parameter& parameter = *member.parameter;
        const Tensor arrived =
            Tensor::InBuffer(table->weights, begin + member.offset, parameter.shape(), DType::F32);
        kernels::Copy(parameter.variable.value().view(), arrived.view(), *stream_);
        const Tensor& shadow = parameter.variable.leaf().shadow();
        if (shadow.defined()) kernels::Cast(shadow.view(), arrived.view(), *stream_);
      }
      begin += bucket.memory->num_bytes();
    }
  }
}

void ServedParameters::BeginStep(int num_passes) {
  finite_ = true;
  for (const auto& table : tables_) table->gradients->BeginStep(num_passes);
}

void ServedParameters::BeginPass(Context& /*context*/, int pass) {
  for (const auto& table : tables_) table->gradients->BeginPass(pass);
}

void ServedParameters::Push(Context& context, const Table& table, size_t bucket) {
  if (context.failed()) return;
  const auto& ids = table.bucket_ids[bucket];
  const std::shared_ptr<Buffer>& memory = table.gradients->buckets()[bucket].memory;
  const Tensor gradients = Tensor::InBuffer(
      memory, 0, Shape{static_cast<int64_t>(ids->size()), static_cast<int64_t>(kChunk)},
      DType::F32);
  if (!std::isfinite(kernels::SquaredNorm(gradients.data<float>(), gradients.num_elements()))) {
    finite_ = false;
    return;
  }
  pushes_->Push({{table.number, ids, gradients}});
}

std::optional<std::string> ServedParameters::KeptBack() const {
  if (finite_) return std::nullopt;
  for (const auto& table : tables_) {
    for (const GradientBuckets::Bucket& bucket : table->gradients->buckets()) {
      for (const GradientBuckets::Member& member : bucket.members) {
        const Tensor gradient =
            Tensor::InBuffer(bucket.memory, member.offset, member.parameter->shape(), DType::F32);
        if (!std::isfinite(kernels::SumOfSquares(gradient.view(), *stream_)))
          return member.parameter->name;
      }
    }
  }
  return "";
}

void ServedParameters::Finish(Context& context) {
  if (context.failed()) return;
  for (const auto& table : tables_) table->gradients->Finish(context);
}

}  // namespace tandem::parallel
