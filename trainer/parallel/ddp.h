// Data parallelism (Li et al., "PyTorch Distributed", VLDB 2020). Split: the batch, one part per replica. Collective: a
// sum of every dense gradient over replicas. When: during the backward pass, bucket by bucket. Buckets follow the reverse
// order of the parameters and are launched strictly in bucket order on every rank, never in the order of readiness.
// Thread rule: the step's thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "trainer/comm/process_group.h"
#include "trainer/autograd/parameter.h"

namespace tandem::parallel {

struct DdpOptions {
  size_t bucket_bytes = 25 << 20;
  size_t first_bucket_bytes = 1 << 20;  // small, so that communication starts early
};

class Ddp {
 public:
  // Places every gradient in a bucket of the group's memory and hooks every leaf. Collective over `group`, whose arrays lie where
  // the parameters do if it has several ranks.
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(ParameterSet* parameters, comm::ProcessGroup* group,
                                                     Stream* stream, const DdpOptions& options);
  ~Ddp();

  // Clears gradients. `num_passes` backward passes make this step: only the last one reduces.
  void BeginStep(int num_passes);
  // Called before each pass, 0 .. num_passes - 1.
  void BeginPass(int pass) { last_pass_ = pass + 1 == num_passes_; }
  // In place of the passes: what an earlier step's gave the stream is run again, and fills the buckets. REQUIRES: a group of one rank,
  // whose passes give nothing but kernels.
  void AcceptGradients();
  // After the last pass: launches what no gradient reached (as zeros), waits for every bucket, fails the context if one
  // fails. Afterwards all gradients are sums over replicas.
  void Finish(Context& context);

 private:
  struct Bucket {
    std::vector<Parameter*> parameters;
    std::shared_ptr<Buffer> memory;
    ArrayView view;
    int missing = 0;
    std::vector<comm::Work> work;  // empty until launched
  };

  Ddp(ParameterSet* parameters, comm::ProcessGroup* group, Stream* stream)
      : parameters_(parameters), group_(group), stream_(stream) {}
  absl::Status MakeBuckets(const DdpOptions& options);
  void OnGradient(size_t bucket, Parameter* parameter);
  void LaunchReady();

  ParameterSet* parameters_;
  comm::ProcessGroup* group_;
  Stream* stream_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;  // the first not launched
  int num_passes_ = 1;
  bool last_pass_ = true;
};

// Ok if `value` is the same on all ranks: replicas that drifted apart are an Internal error. Collective over `group`, whose arrays lie
// in the memory of the host.
absl::Status VerifyEqual(comm::ProcessGroup& group, uint64_t value, const char* what, absl::Time deadline);

}  // namespace tandem::parallel
