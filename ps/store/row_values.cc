#include "ps/store/row_values.h"

#include "ps/store/initializer.h"
#include "ps/wire/row_codec.h"

namespace tandem::ps {
namespace {

// Makes the random bits of rounding differ from those of first weights.
constexpr uint64_t kRoundingSalt = 0x726f756e64696e67;

}  // namespace

RowValues::RowValues(const TableSpec& spec, const SparseOptimizer& optimizer,
                     const LazyCatchUp& missed, const RowLayout& layout)
    : spec_(spec),
      optimizer_(optimizer),
      missed_(missed),
      layout_(layout),
      weights_(spec.dim()),
      first_(layout.weight_bytes()) {}

void RowValues::Init(const RowView& row) {
  InitializeWeights(spec_.seed(), spec_.init_stddev(), row.header->id, weights_.data(),
                    spec_.dim());
  EncodeNearest(layout_.storage(), weights_.data(), spec_.dim(), row.weights);
  optimizer_.Init(row.slots, spec_.dim());
  if (optimizer_.remembers_shown()) {
    DecodeWeights(layout_.storage(), row.weights, spec_.dim(), weights_.data());
    optimizer_.Shown(weights_.data(), row.slots, spec_.dim());
  }
}

void RowValues::First(uint64_t id, float* weights) {
  InitializeWeights(spec_.seed(), spec_.init_stddev(), id, weights, spec_.dim());
  if (layout_.storage() == STORED_F32) return;
  EncodeNearest(layout_.storage(), weights, spec_.dim(), first_.data());
  DecodeWeights(layout_.storage(), first_.data(), spec_.dim(), weights);
}

RandomKey RowValues::RoundingKey(uint64_t id) const { return {spec_.seed() ^ kRoundingSalt, id}; }

bool RowValues::BringUp(const RowView& row, float* weights, uint64_t step) {
  const uint64_t from = row.header->last_step;
  if (row.header->version == 0 || from >= step) return false;
  if (missed_.exact()) {
    missed_.Replay(weights, row.slots, from, step, [&](uint64_t replayed) {
      if (layout_.storage() == STORED_F32) return;
      EncodeStochastic(layout_.storage(), weights, spec_.dim(), RoundingKey(row.header->id),
                       replayed, row.weights);
      DecodeWeights(layout_.storage(), row.weights, spec_.dim(), weights);
    });
  } else {
    missed_.CatchUp(weights, row.slots, from, step);
  }
  row.header->last_step = static_cast<uint32_t>(step);
  return true;
}

void RowValues::BringUpStored(const RowView& row) {
  const uint64_t step = missed_.last_step();
  float* const weights = Weights(row, weights_.data());
  // With exact() BringUp has stored each step.
  if (BringUp(row, weights, step) && !missed_.exact()) Store(row, weights, step);
}

void RowValues::ShowDecayed(const RowHeader& header, float* weights) const {
  if (header.version == 0) return;
  const float decay = missed_.WeightDecay(header.last_step, missed_.last_step());
  for (uint32_t i = 0; i < spec_.dim(); ++i) weights[i] *= decay;
}

}  // namespace tandem::ps
