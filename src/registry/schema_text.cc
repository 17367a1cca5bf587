#include "registry/schema_text.h"

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace walpost::registry {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::DescriptorProto;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;

// Whether there is an error is all that counts.
class Silent final : public google::protobuf::io::ErrorCollector,
                     public DescriptorPool::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {
    failed_ = true;
  }

  void AddError(const std::string&, const std::string&, const google::protobuf::Message*,
                ErrorLocation, const std::string&) override {
    failed_ = true;
  }

  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

// The parser has no limit of its own.
bool IsTooDeep(const std::string& text) {
  int depth = 0;
  return std::any_of(text.begin(), text.end(), [&depth](char c) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    return depth > kSchemaDepthMax;
  });
}

// The parser prints a warning for a file that does not say so itself.
std::string WithSyntax(const std::string& text) {
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  Silent errors;
  google::protobuf::io::Tokenizer tokens(&stream, &errors);
  tokens.Next();
  return tokens.current().text == "syntax" ? text : "syntax = \"proto2\"; " + text;
}

std::optional<FileDescriptorProto> Parse(const std::string& given) {
  const std::string text = WithSyntax(given);
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  Silent errors;
  google::protobuf::io::Tokenizer tokens(&stream, &errors);
  google::protobuf::compiler::Parser parser;
  parser.RecordErrorsTo(&errors);
  FileDescriptorProto file;
  if (!parser.Parse(&tokens, &file) || errors.failed()) {
    return std::nullopt;
  }
  return file;
}

void AddImports(const FileDescriptor& file, DescriptorPool* pool) {
  for (int i = 0; i < file.dependency_count(); ++i) {
    const FileDescriptor& import = *file.dependency(i);
    if (pool->FindFileByName(import.name()) == nullptr) {
      AddImports(import, pool);
      FileDescriptorProto proto;
      import.CopyTo(&proto);
      pool->BuildFile(proto);
    }
  }
}

}  // namespace

std::optional<FileDescriptorProto> ReadSchema(const std::string& schema) {
  FileDescriptorProto file;
  std::string bytes;
  if (absl::Base64Unescape(schema, &bytes) && file.ParseFromString(bytes)) {
    return file;
  }
  return IsTooDeep(schema) ? std::nullopt : Parse(schema);
}

std::optional<std::vector<std::int32_t>> FindIndexes(const FileDescriptorProto& file,
                                                     const std::string& record) {
  const std::string prefix = file.package().empty() ? "" : file.package() + ".";
  if (!absl::StartsWith(record, prefix)) {
    return std::nullopt;
  }
  std::vector<std::int32_t> indexes;
  const auto* messages = &file.message_type();
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(record.substr(prefix.size()), '.'))) {
    const auto found =
        std::find_if(messages->begin(), messages->end(), [&name](const DescriptorProto& message) {
          return message.name() == name && !message.options().map_entry();
        });
    if (found == messages->end()) {
      return std::nullopt;
    }
    indexes.push_back(static_cast<std::int32_t>(found - messages->begin()));
    messages = &found->nested_type();
  }
  return indexes;
}

bool SameDeclarations(const FileDescriptor& ours, FileDescriptorProto theirs) {
  DescriptorPool pool;
  AddImports(ours, &pool);
  theirs.set_name(ours.name());
  Silent errors;
  const FileDescriptor* const built = pool.BuildFileCollectingErrors(theirs, &errors);
  if (built == nullptr) {
    return false;
  }
  FileDescriptorProto a;
  FileDescriptorProto b;
  ours.CopyTo(&a);
  built->CopyTo(&b);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_repeated_field_comparison(google::protobuf::util::MessageDifferencer::AS_SET);
  return differencer.Compare(a, b);
}

}  // namespace walpost::registry
