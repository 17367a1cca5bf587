// ServerErrors - what an error of the server means that ended the stream: that the next one asks for
// all values as text, or that the same position fails for ever.
// Why: values come in binary. A type without a binary form ends that stream; as text it can be read, but
//   a bytea is twice as long then, and may be too long for the server. So streams that begin before that
//   transaction get text, and those behind it do not. The server may end without having read that it was
//   confirmed, so only where a stream begins shows that. What fails behind it in text counts when nothing
//   else is waited for.
// Thread: a value.
#pragma once

#include <string>

#include "base/lsn.h"
#include "base/stream_end.h"

namespace walpost::pipeline {

class ServerErrors {
 public:
  // The same error at the same position this often is poison_wal.
  static constexpr int kSameErrorMax = 3;

  // A connection whose stream begins up to here asks for text.
  base::Lsn text_until() const { return text_until_; }

  void OnConnected(bool text) {
    text_ = text;
    text_until_ = text ? text_until_ : base::Lsn();
  }

  // The stream ended with `end` while what commits at `reading` was read, and `error` names both. All
  // before `confirmable` may be confirmed. How often it has ended so; 0 = that says nothing yet.
  int OnError(const base::StreamEnd& end, const std::string& error, base::Lsn reading,
              base::Lsn confirmable) {
    if (!text_ && end.no_binary_form) {
      text_until_ = reading;
      return 0;
    }
    if (text_ && reading > text_until_ && confirmable <= text_until_) {
      return 0;  // binary is tried when that is confirmed
    }
    count_ = error == error_ ? count_ + 1 : 1;
    error_ = error;
    reading_ = reading;
    return count_;
  }

  // What committed before `flush` does not come again.
  void OnConfirmed(base::Lsn flush) { count_ = flush > reading_ ? 0 : count_; }

  void Forget() { *this = ServerErrors(); }

 private:
  bool text_ = false;     // the newest connection gets it
  base::Lsn text_until_;  // the commit LSN of what has no binary form; 0/0 = nothing
  std::string error_;
  base::Lsn reading_;
  int count_ = 0;
};

}  // namespace walpost::pipeline
