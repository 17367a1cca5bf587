// SentColumns - which columns of a table the server sends for a publication, as SQL.
// Why: preflight, `check` and who reads rows must have the columns that the stream has; pgoutput decides it.
// Rule: of a table that has a column list in the publication, the columns in it. Of any other, however it is
//   published, all but generated ones, and from 18 on stored generated ones where the publication has
//   publish_generated_columns = stored. A virtual one may be in no list, so it is never sent.
// Source: PostgreSQL's pgoutput.c (check_and_fetch_column_list) and proto.c
//   (logicalrep_should_publish_column).
#pragma once

#include <string>
#include <string_view>

namespace walpost::postgres {

// About `a`, a row of pg_attribute of the table whose name the rows come under. `publication`: SQL for its OID.
std::string SentColumnSql(int server_version, std::string_view publication);

// About the same: whether a column list can name it.
std::string ListableColumnSql(int server_version);

}  // namespace walpost::postgres
