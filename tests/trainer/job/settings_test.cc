#include "trainer/job/settings.h"

#include <gtest/gtest.h>
#include <map>

#include "tests/trainer/our_kinds.h"
#include "trainer/job/job_config.h"

namespace tandem::job {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr char kJob[] =
    "data { path: \"a \\\"log\\\"\" } model { sequence_rec { dropout: 0.1 } } "
    "tables { name: \"item\" dim: 32 }";

Job Parsed(const std::string& text, const std::vector<std::string>& sets = {}) {
  auto job = ParseJob(text, "job", sets, {.models = OurKinds().models(), .num_trainers = 1});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(Job());
}

TEST(SettingsTest, AFieldIsWrittenAsSetWritesIt) {
  const Settings listed = SettingsOf(Parsed(kJob));
  const std::map<std::string, std::string> settings(listed.begin(), listed.end());
  EXPECT_EQ(settings.size(), listed.size()) << "no path comes twice";
  EXPECT_EQ(settings.at("seed"), "0");
  EXPECT_EQ(settings.at("data.path"), "a \"log\"") << "a text without its quotation marks";
  EXPECT_EQ(settings.at("model.sequence_rec.dropout"), "0.1");
  EXPECT_EQ(settings.at("model.sequence_rec.loss"), "BCE") << "defaults are there";
  EXPECT_EQ(settings.at("tables[item].dim"), "32");
  EXPECT_EQ(settings.count("data.items_path"), 0u) << "it is empty";
  EXPECT_EQ(settings.count("device"), 0u) << "the machine decides";
  EXPECT_EQ(settings.count("model.gpt.layers"), 0u) << "the model is another";
}

TEST(SettingsTest, JobsThatDifferHaveDifferentSettings) {
  const Settings settings = SettingsOf(Parsed(kJob));
  EXPECT_EQ(settings, SettingsOf(Parsed(kJob)));
  for (const char* set :
       {"seed=2", "train.batch_size=64", "tables[item].dim=16", "data.ids=MAP", "model.dropout=0"})
    EXPECT_NE(settings, SettingsOf(Parsed(kJob, {set}))) << set;
}

TEST(SettingsTest, OptionsOfACustomModelAreSettings) {
  Job job;
  auto& values = *job.mutable_model()->mutable_custom()->mutable_options()->mutable_values();
  values["loss"] = "bpr";
  values["dim"] = "32";
  const Settings settings = SettingsOf(job);
  const auto first =
      std::find(settings.begin(), settings.end(),
                std::pair<std::string, std::string>("model.custom.options.dim", "32"));
  ASSERT_NE(first, settings.end());
  EXPECT_EQ((first + 1)->first, "model.custom.options.loss");
}

}  // namespace
}  // namespace tandem::job
