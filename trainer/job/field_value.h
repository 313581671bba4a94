// Puts one written value into one field of a message, or says why the value is wrong. Job files and
// --set share this code, so both accept the same words.
// Thread rule: free functions.
#pragma once

#include <string>
#include <string_view>

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace tandem {

struct WrittenValue {
  std::string text;       // without quotes, escapes resolved
  bool quoted = false;    // written as a string literal
  bool argument = false;  // from the command line, where strings have no quotes
};

// Sets `field`, or adds to it if it is a list. Returns "", or a sentence with the allowed and the
// found value that names the field `path`.
// REQUIRES: the field is not a message.
std::string AssignScalar(const std::string& path, const google::protobuf::FieldDescriptor* field,
                         const WrittenValue& value, google::protobuf::Message* message);

// The only field of a message whose keys are free, as those of Custom.Options: a map of texts. Null
// for other messages.
const google::protobuf::FieldDescriptor* OptionsOf(const google::protobuf::Descriptor* type);

// Sets an option. `message` is of a type with free keys. Returns "" or a sentence, as AssignScalar.
std::string AssignOption(const std::string& path, const std::string& key, const WrittenValue& value,
                         google::protobuf::Message* message);

// The kind of value that the field takes: "a whole number", "true or false", ...
std::string TakesWhat(const google::protobuf::FieldDescriptor* field);

// `unknown field "batch_sise" in Train; did you mean "batch_size"?`. Without a close name, says
// where a field of that name is, or which fields there are.
std::string UnknownField(const google::protobuf::Descriptor* type, std::string_view name);

}  // namespace tandem
