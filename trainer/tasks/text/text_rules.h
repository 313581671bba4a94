// Limits and defaults that language models of all kinds share: cutting, tables and selection.
// Thread rule: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/job/limits.h"

namespace tandem {
class Job;    // proto/job.pb.h
class Model;  // proto/job.pb.h
}  // namespace tandem

namespace tandem::tasks {

// The sizes of a job's model, with defaults for what the job does not say.
struct TextModel {
  std::string path;  // "model.gpt."
  int dim = 0, heads = 0, kv_heads = 0, ffn_dim = 0;
  bool heads_given = false;
};

// Adds an error for each limit that the model's heads, its layout, its table or its selection
// breaks.
void CheckTextModel(const Job& job, const TextModel& model, Limits* limits);
// Fills in the job's placement, table and selection.
void ResolveTextModel(int dim, double embedding_stddev, Job* job);

}  // namespace tandem::tasks
