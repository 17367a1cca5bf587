#include "postgres/sent_columns.h"

#include "absl/strings/str_format.h"

namespace walpost::postgres {
namespace {

constexpr int kColumnListsSince = 150000;
constexpr int kGeneratedSentSince = 180000;

}  // namespace

std::string SentColumnSql(int server_version, std::string_view publication) {
  std::string without_list = "a.attgenerated = ''";
  if (server_version >= kGeneratedSentSince) {
    absl::StrAppendFormat(&without_list,
                          " OR a.attgenerated = 's' AND EXISTS (SELECT FROM "
                          "pg_catalog.pg_publication p WHERE p.oid = %s AND p.pubgencols = 's')",
                          publication);
  }
  return server_version < kColumnListsSince
             ? "(" + without_list + ")"
             : absl::StrFormat(
                   "coalesce((SELECT a.attnum = ANY (l.prattrs) FROM pg_catalog.pg_publication_rel "
                   "l WHERE l.prpubid = %s AND l.prrelid = a.attrelid), %s)",
                   publication, without_list);
}

std::string ListableColumnSql(int server_version) {
  return server_version < kGeneratedSentSince ? "a.attgenerated = ''"
                                              : "a.attgenerated IN ('', 's')";
}

}  // namespace walpost::postgres
