// The limits, defaults and options of Job.model.llama (proto/job.proto).
// Thread rule: free functions.
#pragma once

#include "trainer/job/limits.h"
#include "trainer/models/gpt.h"

namespace tandem {
class Job;    // proto/job.pb.h
class Model;  // proto/job.pb.h
}  // namespace tandem

namespace tandem::tasks {

struct LlamaRules {
  // Adds one error for every limit that the model, its table or its selection breaks.
  static void Check(const Job& job, Limits* limits);
  // Fills in the defaults of the model, its placement, its table and its selection. REQUIRES: Check
  // found nothing.
  static void Resolve(Job* job);
  static void ClearTrainingFields(Model* model);
  static int NumLayers(const Model& model);
  // Translates a resolved job.
  static models::GptOptions OptionsOf(const Job& job, int64_t vocabulary_size);
};

}  // namespace tandem::tasks
