#include "operations/reconcile/shared_keys.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/status.h"
#include "operations/reconcile/disk_buckets.h"

namespace walpost::operations {
namespace {

constexpr std::size_t kNamedBytesMax = 100;

// Topic and key, with what separates them: no topic has it.
std::string NameOf(const envelope::Record& record) {
  return absl::StrFormat("%s\n%s", record.topic, record.key->substr(0, DiskBuckets::kKeyBytesMax));
}

bool HasRowsToSend(const RowsToSend& table) {
  return std::find(table.settled->begin(), table.settled->end(), false) != table.settled->end();
}

absl::Status AddKeys(const RowsToSend& table, std::uint32_t number, DiskBuckets* keys) {
  return table.reader->ForEach([&](const ReadRow& row) {
    return (*table.settled)[row.number] || !row.record.ok() || !row.record->key
               ? absl::OkStatus()
               : keys->Add(NameOf(*row.record),
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
