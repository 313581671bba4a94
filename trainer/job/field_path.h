// The path of a field in a message, as --set writes it: train.batch_size, tables[item].dim. A list
// element is selected by its name or index; a list of plain values is set whole, as A,B,C. The path
// may omit the chosen member of a oneof:
// model.heads is model.sequence_rec.heads. In a message that is one map of texts, every name is a
// key.
// Thread rule: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/job/field_value.h"

namespace tandem {

// Returns the path of field `name` in the message at `path`, which is "" for the root.
std::string JoinPath(const std::string& path, const std::string& name);

// One step of a path: name or name[key].
struct PathStep {
  std::string name;
  std::optional<std::string> key;
};

// Returns nothing if `path` is not well formed. A dot inside brackets belongs to the key.
std::vector<PathStep> SplitPath(const std::string& path);

// The selectors of a list's elements: the `name` field if the element has one, else the index.
// REQUIRES: the field of `message` is a list of messages.
std::vector<std::string> ElementNames(const google::protobuf::Message& message,
                                      const google::protobuf::FieldDescriptor* field);

// Walks a path down from the root message.
class PathWalk {
 public:
  // REQUIRES: the message outlives the walk.
  explicit PathWalk(google::protobuf::Message* root) : message_(root) {}

  // Returns "", or why the path leads nowhere. REQUIRES: `steps` is not empty; called once.
  std::string Follow(const std::vector<PathStep>& steps);
  // Puts the value where the path leads. Returns "" or a complaint. REQUIRES: Follow returned "".
  std::string Assign(const WrittenValue& value) const;
  // Canonical: the index instead of a name, every oneof member spelled out.
  const std::string& path() const { return path_; }

 private:
  std::string Find(const std::string& name);
  std::string TakeOption(const std::vector<PathStep>& steps, size_t at);
  std::string Select(const std::optional<std::string>& key);
  void Enter();

  google::protobuf::Message* message_;
  const google::protobuf::FieldDescriptor* field_ = nullptr;
  std::optional<std::string> option_;  // the key in a message with free keys
  int index_ = 0;
  std::string path_;
};

}  // namespace tandem
