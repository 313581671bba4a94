// The weights of a table's rows as f32, whatever the storage: a new row's first weights, and the
// steps that a row has missed (LazyCatchUp).
// Thread rule: one thread.
// Invariant: a row that was never committed is a function of its id and the table's seed.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/random.h"
#include "proto/embedding.pb.h"
#include "ps/optimizer/lazy_catch_up.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/wire/row_layout.h"

namespace tandem::ps {

class RowValues {
 public:
  // The arguments outlive this object.
  RowValues(const TableSpec& spec, const SparseOptimizer& optimizer, const LazyCatchUp& missed,
            const RowLayout& layout);

  // Gives a new row its first weights and slots.
  void Init(const RowView& row);
  // Computes a new row's weights as Pull shows them.
  void First(uint64_t id, float* weights);

  // Returns the row's weights in f32: the stored ones, or a copy in `copy` [dim].
  float* Weights(const RowView& row, float* copy) const {
    if (layout_.storage() == STORED_F32) return reinterpret_cast<float*>(row.weights);
    DecodeWeights(layout_.storage(), row.weights, spec_.dim(), copy);
    return copy;
  }
  // Stores weights that Weights returned, rounded at random, as of step `step`.
  void Store(const RowView& row, const float* weights, uint64_t step) const {
    if (layout_.storage() == STORED_F32) return;
    EncodeStochastic(layout_.storage(), weights, spec_.dim(), RoundingKey(row.header->id), step,
                     row.weights);
  }

  // Runs the steps up to `step` that a row has missed. Returns false if there are none. `weights`
  // come from Weights; store them afterwards.
  [[gnu::noinline]] bool BringUp(const RowView& row, float* weights, uint64_t step);
  // Does the same up to the last committed step, and stores the row.
  void BringUpStored(const RowView& row);
  // Decays the weights of a CATCH_UP row with weight decay, as Pull shows them.
  void ShowDecayed(const RowHeader& header, float* weights) const;
  // The effect of steps without a gradient on a pulled row: its record is brought up, or its shown
  // weights are decayed.
  bool BringsUpWhenPulled() const { return missed_.matter() && missed_.exact(); }
  bool ShowsDecayed() const { return !missed_.exact() && missed_.remembers_rates(); }

 private:
  RandomKey RoundingKey(uint64_t id) const;

  const TableSpec& spec_;
  const SparseOptimizer& optimizer_;
  const LazyCatchUp& missed_;
  const RowLayout& layout_;
  std::vector<float> weights_;  // [dim]: f32 weights of one row
  std::vector<char> first_;     // stored weights of a row that is only read
};

}  // namespace tandem::ps
