#include "operations/status/check_parts.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "registry/resolver.h"

namespace walpost::operations {

namespace {

using envelope::Framing;
using envelope::SchemaNeed;
using registry::Finding;
using registry::Resolver;
using Level = CheckLine::Level;

constexpr char kTopic[] = "{topic}";

class SchemaChecker {
 public:
  explicit SchemaChecker(const CheckSchemasOptions& options) : options_(options) {}

  CheckSchemasResult Run() {
    std::vector<envelope::FramingOptions> framings;
    for (const SchemaSource& source : options_.sources) {
      framings.push_back(source.encoder.framing);
    }
    auto resolver = Resolver::Create(options_.registry, framings);
    if (!resolver.ok()) {
      Add(Level::kFailed, "schema registry", std::string(resolver.status().message()));
      return std::move(result_);
    }
    resolver_ = *std::move(resolver);
    if (const absl::Status reached = resolver_->Reach(); !reached.ok()) {
      Fail("schema registry", reached);
      return std::move(result_);
    }
    std::vector<std::string> urls;
    for (const std::string& url : options_.registry.urls) {
      urls.push_back(registry::ShownUrl(url, options_.registry));
    }
    Add(Level::kOk, "schema registry", absl::StrFormat("answers at %s", absl::StrJoin(urls, ", ")));
    for (std::uint32_t i = 0; options_.schemas && i < options_.sources.size(); ++i) {
      if (options_.sources[i].encoder.framing.framing != Framing::kNone && !result_.unreachable) {
        CheckSource(options_.sources[i], i);
      }
    }
    return std::move(result_);
  }

 private:
  void Add(Level level, std::string name, std::string text) {
    result_.lines.push_back({level, std::move(name), std::move(text)});
  }

  void Fail(const std::string& name, const absl::Status& status) {
    result_.unreachable = result_.unreachable || absl::IsUnavailable(status);
    Add(Level::kFailed, name, std::string(status.message()));
  }

  std::vector<std::string> RecordsOf(const SchemaSource& source, std::uint32_t index) const {
    if (source.encoder.format == envelope::ValueFormat::kEnvelope) {
      return {std::string(envelope::kEnvelopeRecord)};
    }
    if (!source.encoder.framing.needs_record()) {
      return {""};
    }
    return resolver_->RecordsOf(index);
  }

  void CheckSource(const SchemaSource& source, std::uint32_t index) {
    const envelope::FramingOptions& framing = source.encoder.framing;
    const std::string name = "schemas of " + source.name;
    const std::vector<std::string> records = RecordsOf(source, index);
    if (records.empty()) {
      Add(Level::kWarning, name,
          "not checked: rows name the messages; set `descriptor_set` to check them");
      return;
    }
    const bool by_topic = framing.subject.find(kTopic) != std::string::npos;
    if (by_topic && source.more_topics) {
      Add(Level::kWarning, name,
          source.topics.empty()
              ? "not checked: their subjects have the topic's name, and rows name the topics; "
                "list the topics in `topics.allowed` to check them"
              : "not checked where rows name other topics: list those in `topics.allowed` to "
                "check them");
    }
    new_subjects_.clear();
    seen_.clear();
    for (const std::string& topic : by_topic ? source.topics : std::vector<std::string>{""}) {
      for (const std::string& record : records) {
        CheckOne(framing, SchemaNeed{framing.framing, framing.type,
                                     envelope::ExpandSubject(framing.subject, topic, record),
                                     record, index});
        if (result_.unreachable) {
          return;
        }
      }
    }
    if (!new_subjects_.empty()) {
      Add(framing.auto_register ? Level::kOk : Level::kWarning, name,
          absl::StrFormat("subjects that do not exist yet: %s; %s",
                          absl::StrJoin(new_subjects_, ", "), Advice(framing)));
    }
  }

  static const char* Advice(const envelope::FramingOptions& framing) {
    return framing.auto_register ? "walpost registers it with the first event"
                                 : "register it before the first event of it";
  }

  void CheckOne(const envelope::FramingOptions& framing, const SchemaNeed& need) {
    if (!seen_.emplace(need.subject, need.record).second) {
      return;
    }
    const std::string name = absl::StrFormat("subject %s%s%s", need.subject,
                                             need.record.empty() ? "" : ", ", need.record);
    const absl::StatusOr<Finding> finding = resolver_->Examine(need);
    if (!finding.ok()) {
      Fail(name, finding.status());
      return;
    }
    switch (finding->state) {
      case Finding::State::kRegistered:
        Add(Level::kOk, name, finding->text);
        return;
      case Finding::State::kCompatible:
        Add(framing.auto_register ? Level::kOk : Level::kWarning, name,
            finding->text + "; " + Advice(framing));
        return;
      case Finding::State::kNewSubject:
        new_subjects_.push_back(need.subject);
        return;
      case Finding::State::kRejected:
        Add(Level::kFailed, name, finding->text);
        return;
    }
  }

  const CheckSchemasOptions& options_;
  std::shared_ptr<Resolver> resolver_;
  CheckSchemasResult result_;
  std::vector<std::string> new_subjects_;
  std::set<std::pair<std::string, std::string>> seen_;
};

}  // namespace

CheckSchemasResult CheckSchemas(const CheckSchemasOptions& options) {
  return SchemaChecker(options).Run();
}

SchemaSource SchemaSourceOf(const outbox::TableOptions& table,
                            const envelope::EncoderOptions& encoder) {
  SchemaSource source{table.schema + "." + table.table, encoder,
                      outbox::NamesAmong(table.topics.allowed), false};
  if (!table.topics.allowed.empty() && source.topics.size() == table.topics.allowed.size()) {
    return source;
  }
  for (const auto& [type, topic] : table.topics.by_aggregate_type) {
    source.topics.push_back(topic);
  }
  const bool fixed = table.topic.find('{') == std::string::npos && !table.debezium;
  if (fixed) {
    source.topics.push_back(table.topic);
  }
  source.more_topics = !fixed || !table.columns.topic.empty();
  return source;
}

}  // namespace walpost::operations
