#include "trainer/tasks/kinds/kinds.h"

#include "kernels/base/check.h"
#include "trainer/tasks/ranking/rec_llm_task.h"
#include "trainer/tasks/ranking/sequence_rec_task.h"
#include "trainer/tasks/text/text_task.h"

namespace tandem::tasks {

namespace {

std::vector<Kind> WithOurs(std::vector<Kind> more) {
  std::vector<Kind> kinds{Add<SequenceRecTask>("sequence_rec"), Add<GptTask>("gpt"),
                          Add<LlamaTask>("llama"), Add<RecLlmTask>("rec_llm")};
  kinds.insert(kinds.end(), more.begin(), more.end());
  return kinds;
}

std::vector<job::ModelRules> RulesOf(const std::vector<Kind>& kinds) {
  std::vector<job::ModelRules> rules;
  for (const Kind& kind : kinds) rules.push_back(kind.rules);
  return rules;
}

}  // namespace

Kinds::Kinds(std::vector<Kind> more)
    : kinds_(WithOurs(std::move(more))), models_(RulesOf(kinds_)) {}

const Kind& Kinds::Of(const Job& job) const {
  const std::string name = job::KindOf(job.model());
  for (const Kind& kind : kinds_) {
    if (kind.rules.name == name) return kind;
  }
  TANDEM_CHECK(false) << "a job of the unknown kind " << name;
  return kinds_.front();
}

}  // namespace tandem::tasks
