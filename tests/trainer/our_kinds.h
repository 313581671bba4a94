// The kinds of model that the project has, for tests of jobs and runs.
// Thread rule: constant; any thread.
#pragma once

#include "trainer/tasks/kinds/kinds.h"
#include "trainer/tasks/ranking/sequence_rec_task.h"
#include "trainer/tasks/text/text_task.h"

namespace tandem {

inline const tasks::Kinds& OurKinds() {
  static const auto* const kinds = new tasks::Kinds();
  return *kinds;
}

using SequenceRecData = tasks::DataOf<tasks::SequenceRecTask>;
using GptData = tasks::DataOf<tasks::GptTask>;
using LlamaData = tasks::DataOf<tasks::LlamaTask>;

}  // namespace tandem
