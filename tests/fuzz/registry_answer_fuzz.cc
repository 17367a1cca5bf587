// An input is what a Schema Registry, or anybody in its place, answers: the first byte says to
// which question and with which code, the rest is the body; or it is a schema's text, or the file
// that a schema's base64 is of.
#include <glog/logging.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/stubs/logging.h>

#include <array>
#include <string>

#include "absl/strings/escaping.h"
#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "registry/client.h"
#include "registry/schema_text.h"
#include "walpost/v1/envelope.pb.h"

namespace walpost::fuzz {
namespace {

constexpr std::size_t kShownMax = 2'000;
constexpr std::uint8_t kText = 0x80;
constexpr std::uint8_t kFile = 0xc0;

constexpr char kWithOptions[] = R"(syntax = "proto2"; import "google/protobuf/descriptor.proto";
  message M { optional M m = 1; optional int32 i = 2; optional int32 j = 3; repeated M r = 4; }
  extend google.protobuf.FileOptions { optional M o = 50000; } )";

void CheckStatus(const absl::Status& status) {
  CHECK(status.ok() || absl::IsUnavailable(status) || absl::IsNotFound(status) ||
        absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status))
      << status;
  CHECK_LE(status.message().size(), kShownMax);
}

// One that imports what custom options are declared with: theirs are looked at, too.
const google::protobuf::FileDescriptor& WithOptions() {
  static google::protobuf::DescriptorPool pool;
  static const google::protobuf::FileDescriptor* const file = [] {
    google::protobuf::FileDescriptorProto options;
    google::protobuf::FileDescriptorProto::descriptor()->file()->CopyTo(&options);
    pool.BuildFile(options);
    google::protobuf::FileDescriptorProto with_options = *registry::ReadSchema(kWithOptions);
    with_options.set_name("with_options.proto");
    return pool.BuildFile(with_options);
  }();
  return *CHECK_NOTNULL(file);
}

void CheckSchema(const std::string& text) {
  const auto theirs = registry::ReadSchema(text);
  if (!theirs) {
    return;
  }
  const auto indexes = registry::FindIndexes(*theirs, "shop.v1.Order");
  CHECK(!indexes || (!indexes->empty() && indexes->size() <= registry::kSchemaDepthMax));
  (void)registry::SameDeclarations(*v1::Envelope::descriptor()->file(), *theirs);
  (void)registry::SameDeclarations(WithOptions(), *theirs);
}

void CheckAnswer(std::uint8_t choice, std::string body) {
  constexpr std::array kCodes = {200L, 200L, 404L, 409L, 422L, 401L, 500L, 0L};
  const absl::StatusOr<registry::HttpAnswer> answer =
      registry::HttpAnswer{kCodes[choice % kCodes.size()], std::move(body), "http://registry"};
  CheckStatus(registry::StatusFrom(answer));
  const auto registered = registry::RegisteredFrom(answer);
  CheckStatus(registered.status());
  if (registered.ok()) {
    CHECK_GT(registered->id, 0);
    CHECK_GE(registered->version, 0);
    CHECK(!registered->schema.type.empty());
    CheckSchema(registered->schema.text);
  }
  const auto compatibility = registry::CompatibilityFrom(answer);
  CheckStatus(compatibility.status());
  CHECK(!compatibility.ok() || compatibility->reasons.size() <= kShownMax);
  CheckStatus(registry::GuidFrom(answer).status());
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

// Deep for protobuf's parser, whatever a look at the braces alone says.
std::vector<std::string> DeepTexts() {
  constexpr int kDeep = 5'000;
  const std::string closed(kDeep, '}');
  std::vector<std::string> texts = {Repeated("message M{", kDeep),
                                    closed + Repeated("message M{", kDeep) + closed,
                                    "x {" + Repeated("{{}}", kDeep), Repeated("x {{}}", kDeep)};
  for (const char* hidden : {"/*}*/", "//}\n", "option a = \"}\";", "option a = '}';"}) {
    texts.push_back(Repeated(std::string("message M{") + hidden, kDeep) + closed);
  }
  for (const char* option : {"m<", "m{"}) {
    texts.push_back(std::string(kWithOptions) + "option (o) = {" + Repeated(option, kDeep) +
                    Repeated(option[1] == '<' ? ">" : "}", kDeep) + "};");
  }
  const std::string path = "option (o)" + Repeated(".m", kDeep);
  texts.push_back(kWithOptions + path + ".i = 1;" + path + ".j = 1;");
  return texts;
}

// Short for what is made of them.
std::vector<std::string> FlatTexts() {
  constexpr int kMany = 20'000;
  return {"syntax = \"proto3\"; message M{" + Repeated("M a=1;", kMany) + "}",
          Repeated("option(a)=b;", kMany), "message M{" + Repeated("reserved 1;", kMany) + "}",
          "message M{reserved 1" + Repeated(",1", kMany) + ";}",
          kWithOptions + Repeated("option(o).i=1;", kMany)};
}

}  // namespace

std::vector<std::string> MoreInputs() {
  constexpr int kDeep = 100'000;
  std::vector<std::string> inputs = {
      std::string(1, '\0') + std::string(kDeep, '['),
      std::string(1, '\0') + R"({"id": 7, "a": [0)" + Repeated(",{}", kDeep) + "]}"};
  for (const std::vector<std::string>& texts : {DeepTexts(), FlatTexts()}) {
    for (const std::string& text : texts) {
      inputs.push_back(std::string(1, static_cast<char>(kText)) + text);
    }
  }
  google::protobuf::FileDescriptorProto file;
  WithOptions().CopyTo(&file);
  inputs.push_back(std::string(1, static_cast<char>(kFile)) + file.SerializeAsString());
  auto* const option = file.mutable_options()->add_uninterpreted_option();
  option->add_name()->set_name_part("o");
  option->mutable_name(0)->set_is_extension(true);
  option->set_aggregate_value(Repeated("m{", kDeep) + std::string(kDeep, '}'));
  inputs.push_back(std::string(1, static_cast<char>(kFile)) + file.SerializeAsString());
  return inputs;
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  // libprotobuf writes to stderr what it rejects.
  static const google::protobuf::LogSilencer silence;
  std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const walpost::fuzz::Bounds bounds;
  if ((data[0] & walpost::fuzz::kFile) == walpost::fuzz::kFile) {
    walpost::fuzz::CheckSchema(absl::Base64Escape(rest));
  } else if ((data[0] & walpost::fuzz::kText) != 0) {
    walpost::fuzz::CheckSchema(rest);
  } else {
    walpost::fuzz::CheckAnswer(data[0], std::move(rest));
  }
  bounds.Check();
  return 0;
}
