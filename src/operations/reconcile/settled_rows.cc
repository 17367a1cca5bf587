#include "operations/reconcile/settled_rows.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/hash/hash.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/text.h"
#include "operations/reconcile/reconciliation.h"

namespace walpost::operations {
namespace {

constexpr std::size_t kBufferBytes = 16 * 1024;

struct Sizes {
  std::uint16_t key = 0;
  std::uint16_t data = 0;
};

std::size_t BucketOf(std::string_view key) {
  return absl::HashOf(absl::string_view(key.data(), key.size())) % DiskBuckets::kBuckets;
}

bool Write(std::FILE* file, const void* bytes, std::size_t size) {
  return std::fwrite(bytes, 1, size, file) == size;
}

bool Read(std::FILE* file, std::string* bytes, std::size_t size) {
  bytes->resize(size);
  return std::fread(bytes->data(), 1, size, file) == size;
}

}  // namespace

absl::StatusOr<DiskBuckets> DiskBuckets::Create(const std::string& folder) {
  DiskBuckets buckets;
  const char* temporary = std::getenv("TMPDIR");
  buckets.folder_ = !folder.empty() ? folder : temporary != nullptr ? temporary : "/tmp";
  for (auto& file : buckets.files_) {
    std::string name = buckets.folder_ + "/walpost-XXXXXX";
    const int descriptor = mkstemp(name.data());
    if (descriptor < 0) {
      return buckets.Failed("cannot make a file");
    }
    unlink(name.c_str());
    file.reset(fdopen(descriptor, "w+b"));
    if (file == nullptr || std::setvbuf(file.get(), nullptr, _IOFBF, kBufferBytes) != 0) {
      return buckets.Failed("cannot open a file");
    }
  }
  return buckets;
}

absl::Status DiskBuckets::Add(std::string_view key, std::string_view data) {
  const Sizes sizes{static_cast<std::uint16_t>(key.size()),
                    static_cast<std::uint16_t>(data.size())};
  if (sizes.key != key.size() || sizes.data != data.size()) {
    return absl::InvalidArgumentError("a key of more than 64 KiB");
  }
  std::FILE* file = files_[BucketOf(key)].get();
  if (!Write(file, &sizes, sizeof(sizes)) || !Write(file, key.data(), key.size()) ||
      !Write(file, data.data(), data.size())) {
    return Failed("cannot write");
  }
  return absl::OkStatus();
}

absl::Status DiskBuckets::ForEach(std::size_t bucket, const OnEntry& on_entry) {
  std::FILE* file = files_[bucket].get();
  if (std::fseek(file, 0, SEEK_SET) != 0) {  // writes what is in the buffer
    return Failed("cannot write");
  }
  Sizes sizes;
  std::string key;
  std::string data;
  while (std::fread(&sizes, sizeof(sizes), 1, file) == 1) {
    if (!Read(file, &key, sizes.key) || !Read(file, &data, sizes.data)) {
      return Failed("cannot read");
    }
    RETURN_IF_ERROR(on_entry(key, data));
  }
  if (std::ferror(file) != 0 || std::fseek(file, 0, SEEK_END) != 0) {
    return Failed("cannot read");
  }
  return absl::OkStatus();
}

absl::Status DiskBuckets::Failed(const char* what) const {
  const std::string text = absl::StrFormat("%s in %s: %s; --temp-dir names another folder", what,
                                           folder_, std::strerror(errno));
  return errno == ENOSPC ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

using kafka::Compaction;

std::string SettledRows::SupersededText() const {
  return superseded > 0 ? absl::StrFormat(", %d superseded by newer ones, compacted", superseded)
                        : "";
}

std::string CompactionDoubt(const std::string& unknown) {
  return unknown +
         "; --send-unproven sends what is not there, behind newer events of its keys where the "
         "topic is compacted";
}

std::string SettledRows::UnprovenText() const {
  return unproven > 0 ? absl::StrFormat(", of %d it is not known whether Kafka has them", unproven)
                      : "";
}

namespace {

// Why a row may be older than it seems.
std::string AgeDoubt(const Reconciled& reconciled, const ReconciledTopic& topic) {
  const ClockComparison& clocks = topic.clocks;
  if (reconciled.row.at_ms > topic.deletions_until_ms) {
    return ", or may be: its time is ahead of the clock";
  }
  if (!clocks.ahead_ms()) {
    return ", or may be: no event of the topic shows how far times of rows are ahead";
  }
  return clocks.id().empty()
             ? ""
             : absl::StrFormat(
                   ", or may be: rows seem up to %d s younger than their records, as event %s does",
                   (*clocks.ahead_ms() + 999) / 1'000,
                   base::Printable(clocks.id(), base::kShownBytesMax));
}

std::string Doubt(const Reconciled& reconciled, const ReconciledTopic& reconciled_topic) {
  const std::string id = base::Printable(reconciled.row.id);
  const std::string& topic = reconciled_topic.name;
  if (reconciled.id_unproven) {
    return absl::StrFormat(
        "it is not known of row %s whether topic '%s' has it: a record or dead letter with its id "
        "may be about another row, of this table, another one or another pipeline, or too many "
        "rows have its id; --send-unproven sends such rows",
        id, topic);
  }
  if (reconciled.order_unproven) {
    return absl::StrFormat(
        "topic '%s' is compacted and has a record with the key of row %s that is about no row of "
        "this table, or about one that no columns.seq puts before or behind it, so it is not known "
        "which is newer; --send-unproven sends such rows, perhaps behind newer events of their "
        "keys",
        topic, id);
  }
  return absl::StrFormat(
      "topic '%s' is compacted and has nothing of the key of row %s. The row is older than what "
      "delete.retention.ms keeps%s, so it is not known whether the key was deleted behind it; "
      "--send-unproven sends such rows, and a key that was deleted is back unless its deletion is "
      "one of them",
      topic, id, AgeDoubt(reconciled, reconciled_topic));
}

}  // namespace

absl::StatusOr<SettledRows> FindSettledRows(const PipelineSettings& pipeline,
                                            const SettledRowsOptions& options,
                                            std::string_view source, RowReader* reader) {
  ASSIGN_OR_RETURN(Reconciliation reconciliation,
                   Reconciliation::Create(options.temp_folder, options.shared_ids));
  RETURN_IF_ERROR(reader->ForEach([&](const ReadRow& row) {
    if (options.on_progress) {
      options.on_progress("reconciled", row.number + 1, reader->count());
    }
    return reconciliation.Add(row, row.number, source);
  }));
  RETURN_IF_ERROR(reconciliation.Look(pipeline, {options.from_oldest_row, options.dead_letters}));
  RETURN_IF_ERROR(reconciliation.CompareClocks());
  SettledRows settled_rows;
  settled_rows.settled.assign(reader->count(), false);
  const auto on_row = [&](const Reconciled& reconciled) {
    const bool dead_letter = !reconciled.in_topic && reconciled.fate != DeadLetterFate::kNone;
    const bool superseded = reconciled.superseded && !dead_letter;
    const bool settled = reconciled.in_topic || dead_letter || superseded;
    settled_rows.settled[reconciled.row.number] = settled;
    settled_rows.in_topic += reconciled.in_topic ? 1 : 0;
    settled_rows.dead_letters += dead_letter ? 1 : 0;
    settled_rows.superseded += superseded ? 1 : 0;
    const ReconciledTopic& topic = reconciliation.topics()[reconciled.row.topic];
    if (!settled &&
        (reconciled.id_unproven || reconciled.order_unproven || reconciled.deletion_unproven)) {
      ++settled_rows.unproven;
      settled_rows.doubt = Doubt(reconciled, topic);
    }
    const kafka::TopicGaps& gaps = topic.gaps;
    settled_rows.missing_of_compacted += gaps.compaction == Compaction::kYes && !settled ? 1 : 0;
    if (gaps.compaction == Compaction::kUnknown && !settled) {
      settled_rows.doubt =
          CompactionDoubt(kafka::UnknownCompactionText(topic.name, gaps.compaction_unknown));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(reconciliation.Judge(on_row, /*in_order=*/true));
  for (const ReconciledTopic& topic : reconciliation.topics()) {
    if (topic.unseen) {
      settled_rows.unseen_topics.emplace(topic.name, *topic.unseen);
    }
  }
  if (reader->IdsMayRepeat()) {
    settled_rows.warning = reconciliation.RepeatedIdsText(source);
  }
  return settled_rows;
}

namespace {

constexpr std::size_t kNamedBytesMax = 100;

// Topic and key, with what separates them: no topic has it.
std::string LabelOf(const envelope::Record& record) {
  return absl::StrFormat("%s\n%s", record.topic, record.key->substr(0, DiskBuckets::kKeyBytesMax));
}

bool HasRowsToSend(const RowsToSend& table) {
  return std::find(table.settled->begin(), table.settled->end(), false) != table.settled->end();
}

absl::Status AddKeys(const RowsToSend& table, std::uint32_t number, DiskBuckets* keys) {
  return table.reader->ForEach([&](const ReadRow& row) {
    return (*table.settled)[row.number] || !row.record.ok() || !row.record->key
               ? absl::OkStatus()
               : keys->Add(LabelOf(*row.record),
                           {reinterpret_cast<const char*>(&number), sizeof(number)});
  });
}

}  // namespace

absl::StatusOr<std::string> SharedKeysText(const std::vector<RowsToSend>& tables,
                                           const std::string& temp_folder) {
  if (std::count_if(tables.begin(), tables.end(), HasRowsToSend) < 2) {
    return std::string();
  }
  ASSIGN_OR_RETURN(DiskBuckets keys, DiskBuckets::Create(temp_folder));
  for (std::uint32_t number = 0; number < tables.size(); ++number) {
    RETURN_IF_ERROR(base::Annotate(AddKeys(tables[number], number, &keys), tables[number].table));
  }
  std::string text;
  for (std::size_t bucket = 0; bucket < DiskBuckets::kBuckets && text.empty(); ++bucket) {
    std::map<std::string, std::uint32_t, std::less<>> table_of;
    RETURN_IF_ERROR(keys.ForEach(bucket, [&](std::string_view name, std::string_view data) {
      std::uint32_t number = 0;
      std::copy(data.begin(), data.end(), reinterpret_cast<char*>(&number));
      const std::uint32_t first = table_of.emplace(std::string(name), number).first->second;
      if (first != number && text.empty()) {
        const std::size_t end = name.find('\n');
        text = absl::StrFormat(
            "%s and %s both have rows with the key %s for topic '%s'. They are sent table by "
            "table, "
            "so an older event of a key may come behind a newer one; --send-unproven sends them",
            tables[first].table, tables[number].table,
            base::Printable(name.substr(end + 1), kNamedBytesMax),
            base::Printable(name.substr(0, end)));
      }
      return absl::OkStatus();
    }));
  }
  return text;
}

}  // namespace walpost::operations
