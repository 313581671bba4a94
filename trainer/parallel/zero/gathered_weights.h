// The weights of ZeRO stage 3. Between uses a rank has only its part of each bucket. The first
// read of a block's parameter gathers the block, frees the one read before, and starts to gather
// the one that was read next the last time. So at most two blocks are whole, in evaluations too.
// Gathers are collectives, so every replica must read blocks in the same order: it runs the same
// operations, however few rows it has. One operation reads parameters of one block.
// Thread rule: the step's thread.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"
#include "trainer/parallel/flat_layout.h"

namespace tandem::parallel {

struct GatheredWeightsOptions {
  comm::ProcessGroup* group = nullptr;  // the replicas
  Stream* stream = nullptr;
  absl::Duration timeout = absl::Seconds(60);  // of a gather
};

class GatheredWeights {
 public:
  // Keeps this rank's parts of the values, or of the initial values if there are none, and frees
  // the values. `layout` is by block.
  GatheredWeights(ParameterSet* parameters, const FlatLayout& layout,
                  const GatheredWeightsOptions& options);
  ~GatheredWeights();
  GatheredWeights(const GatheredWeights&) = delete;
  GatheredWeights& operator=(const GatheredWeights&) = delete;

  // Starts to gather the block that a pass reads first.
  void BeginPass();
  // Frees all blocks, because an update has changed parts of them.
  void Free();
  // The first failure of a gather. The values read since are unspecified.
  const absl::Status& status() const { return status_; }

 private:
  struct Bucket {
    Tensor part;  // of this rank
    FlatBucket layout;
    Tensor whole;  // undefined: freed
  };
  struct Block {
    std::vector<Bucket> buckets;
    std::vector<comm::Work> gathers;  // in flight
  };
  static constexpr int kNone = -1;

  void Keep(const FlatBucket& bucket);
  // Called before each read of a value of the block.
  void OnRead(int block);
  // Notes that `block` follows. kNone: a pass begins.
  void Follow(int block);
  // Starts the block that followed the last two the last time.
  void StartNext();
  void Start(int block);
  // Gives the leaves the values that have been gathered.
  void Await(Block& block);
  // Frees a block, or nothing if it is kNone. Sets it to kNone.
  void FreeBlock(int* block);

  ParameterSet* const parameters_;
  const GatheredWeightsOptions options_;
  std::map<int, Block> blocks_;  // by Parameter::block
  int whole_ = kNone;            // the block that is read
  int arriving_ = kNone;
  // The block that follows two others. Two, because passes go to and fro.
  std::map<std::pair<int, int>, int> next_;
  int before_ = kNone, current_ = kNone;  // the last two: blocks, or the begin of a pass (kNone)
  absl::Status status_;
};

}  // namespace tandem::parallel
