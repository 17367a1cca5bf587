#include "operations/status/tail.h"

#include <poll.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/text.h"
#include "operations/deadletters/dlq_list.h"
#include "pgoutput/decoder.h"
#include "postgres/slots.h"

namespace walpost::operations {
namespace {

using postgres::ReplicationStream;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kStatusEvery{5'000};
constexpr milliseconds kEndWithin{3'000};

class TailRun {
 public:
  TailRun(const TailOptions& options, postgres::Connected connected)
      : options_(options),
        stream_(std::move(connected.stream)),
        reader_(options, std::move(connected.facts)) {}

  absl::Status Run() {
    while (!ended_) {
      if (steady_clock::now() >= next_status_) {
        RETURN_IF_ERROR(SendStatus());
      }
      RETURN_IF_ERROR(Await(next_status_));
      stream_->Receive();
      RETURN_IF_ERROR(TakeFrames());
    }
    End();
    return absl::OkStatus();
  }

 private:
  // Until there is something to read, or to write, or `until`; or it is to end.
  absl::Status Await(steady_clock::time_point until) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
    const short events = static_cast<short>(POLLIN | (stream_->wants_write() ? POLLOUT : 0));
    std::array<pollfd, 2> fds = {pollfd{stream_->socket(), events, 0},
                                 pollfd{options_.stop_fd, POLLIN, 0}};
    poll(fds.data(), fds.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    ended_ = ended_ || (fds[1].revents & POLLIN) != 0;
    return stream_->wants_write() ? stream_->Flush() : absl::OkStatus();
  }

  absl::Status TakeFrames() {
    std::string_view bytes;
    for (auto next = stream_->Take(&bytes); next != ReplicationStream::Next::kNothing;
         next = stream_->Take(&bytes)) {
      if (next == ReplicationStream::Next::kEnded) {
        ended_ = true;
        return stream_->end().status;
      }
      ASSIGN_OR_RETURN(const pgoutput::Frame frame, pgoutput::DecodeFrame(bytes));
      RETURN_IF_ERROR(TakeFrame(frame));
      if (ended_) {
        break;
      }
    }
    return absl::OkStatus();
  }

  absl::Status TakeFrame(const pgoutput::Frame& frame) {
    if (const auto* keepalive = std::get_if<pgoutput::Keepalive>(&frame)) {
      reader_.TakePosition(keepalive->wal_end);
      return keepalive->reply_requested ? SendStatus() : absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::optional<std::string> line,
                     reader_.Take(std::get<pgoutput::XLogData>(frame).payload));
    if (line) {
      ++shown_;
      const absl::Status printed = options_.print(*line);
      ended_ = !printed.ok() || shown_ == options_.limit;
      return absl::IsDeadlineExceeded(printed) ? printed : absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status SendStatus() {
    next_status_ = steady_clock::now() + kStatusEvery;
    const base::Lsn taken = reader_.taken_lsn();
    pgoutput::StandbyStatus status;
    status.write = status.flush = status.apply = taken;
    status.client_time =
        std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
    return stream_->Send(pgoutput::EncodeStandbyStatus(status));
  }

  // So that the server drops the slot now and not when it next writes.
  void End() {
    const auto until = steady_clock::now() + kEndWithin;
    absl::Status going = stream_->SendCopyDone();
    while (going.ok() && steady_clock::now() < until) {
      std::string_view bytes;
      ReplicationStream::Next next = stream_->Take(&bytes);
      while (next == ReplicationStream::Next::kFrame) {
        next = stream_->Take(&bytes);
      }
      if (next == ReplicationStream::Next::kEnded) {
        return;
      }
      pollfd readable{stream_->socket(), POLLIN, 0};
      poll(&readable, 1, 100);
      stream_->Receive();
      going = stream_->Flush();
    }
  }

  const TailOptions& options_;
  const std::unique_ptr<ReplicationStream> stream_;
  TailReader reader_;
  steady_clock::time_point next_status_;
  std::uint64_t shown_ = 0;
  bool ended_ = false;
};

}  // namespace

Outcome Tail(const TailOptions& options) {
  postgres::ConnectOptions source = options.pipeline.source;
  source.application_name = "walpost-tail";
  auto connected = postgres::ConnectTemporarySlot(source, !options.from_now);
  if (const auto* end = std::get_if<postgres::StreamEnd>(&connected)) {
    return Failed(end->status);
  }
  TailRun run(options, std::get<postgres::Connected>(std::move(connected)));
  const absl::Status status = run.Run();
  return status.ok() ? Outcome() : Failed(status);
}

namespace {

using nlohmann::ordered_json;

// A schema is written into a record by who sends it.
envelope::EncoderOptions WithoutFraming(envelope::EncoderOptions options) {
  options.framing = {};
  return options;
}

std::string CommitTime(base::WallTime time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ",
                          absl::FromUnixMicros(time.time_since_epoch().count()),
                          absl::UTCTimeZone());
}

ordered_json TextOrNull(std::string_view text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(std::string(text));
}

void AddBytes(const std::string& name, std::optional<std::string_view> bytes, ordered_json* json) {
  if (!bytes || base::IsUtf8(*bytes)) {
    (*json)[name] = bytes ? ordered_json(std::string(*bytes)) : ordered_json(nullptr);
  } else {
    (*json)[name + "_base64"] = absl::Base64Escape(std::string(*bytes));
  }
}

}  // namespace

TailReader::TailReader(const TailOptions& options, base::SourceFacts facts)
    : options_(options),
      facts_(std::move(facts)),
      message_mapper_(options.messages_topic, options.messages_topics),
      message_encoder_(WithoutFraming(options.pipeline.messages), facts_.database) {
  for (const envelope::OutboxOptions& outbox : options.pipeline.outboxes) {
    outboxes_.push_back({outbox::TableMapper(outbox.table),
                         envelope::Encoder(WithoutFraming(outbox.encoder), facts_.database),
                         outbox.table.schema + "." + outbox.table.table, ""});
    outboxes_.back().mapper.SetTextTypes(facts_.text_types);
  }
}

absl::StatusOr<std::optional<std::string>> TailReader::Take(std::string_view payload) {
  RETURN_IF_ERROR(decoder_.Decode(payload, &message_));
  if (const auto* begin = std::get_if<pgoutput::Begin>(&message_)) {
    open_ = true;
    commit_lsn_ = begin->commit_lsn;
    transaction_ = envelope::TransactionInfo{begin->xid, begin->commit_time};
    next_ordinal_ = 0;
  } else if (const auto* commit = std::get_if<pgoutput::Commit>(&message_)) {
    open_ = false;
    taken_lsn_ = std::max(taken_lsn_, commit->end_lsn);
  } else if (const auto* relation = std::get_if<pgoutput::Relation>(&message_)) {
    Bind(*relation);
  } else if (const auto* type = std::get_if<pgoutput::Type>(&message_)) {
    types_.Add(*type);
  } else if (const auto* insert = std::get_if<pgoutput::Insert>(&message_)) {
    return Row(*insert);
  } else if (const auto* message = std::get_if<pgoutput::LogicalMessage>(&message_)) {
    return Message(*message);
  }
  return std::nullopt;
}

void TailReader::TakePosition(base::Lsn wal_end) {
  if (!open_) {
    taken_lsn_ = std::max(taken_lsn_, wal_end);
  }
}

void TailReader::Bind(const pgoutput::Relation& relation) {
  Outbox* found = nullptr;
  for (Outbox& outbox : outboxes_) {
    found = outbox.label == relation.schema + "." + relation.name ? &outbox : found;
  }
  types_.GiveTo(found == nullptr ? nullptr : &found->mapper);
  if (found != nullptr) {
    found->bind_error = std::string(found->mapper.Bind(relation).message());
  }
  by_oid_[relation.id.oid] = found;
}

std::optional<std::string> TailReader::Row(const pgoutput::Insert& insert) {
  Outbox* const outbox = by_oid_[insert.relation.oid];
  if (outbox == nullptr) {
    return std::nullopt;
  }
  const std::uint32_t ordinal = next_ordinal_++;
  outbox::Event event;
  absl::Status mapped = outbox->bind_error.empty()
                            ? outbox->mapper.Map(insert.values, &event)
                            : absl::FailedPreconditionError(outbox->bind_error);
  return Line(std::move(mapped), event, outbox->label, ordinal, &outbox->encoder);
}

std::optional<std::string> TailReader::Message(const pgoutput::LogicalMessage& message) {
  if (!message.transactional) {
    return std::nullopt;
  }
  const auto& prefixes = options_.pipeline.source.message_prefixes;
  if (std::find(prefixes.begin(), prefixes.end(), message.prefix) == prefixes.end()) {
    return std::nullopt;
  }
  const std::uint32_t ordinal = next_ordinal_++;
  outbox::Event event;
  absl::Status mapped = message_mapper_.Map(message.prefix, message.content, &event);
  return Line(std::move(mapped), event, outbox::MessageLabel(message.prefix), ordinal,
              &message_encoder_);
}

bool TailReader::Wanted(const outbox::Event& event, const std::string& label) const {
  return (options_.table.empty() || options_.table == label) &&
         (options_.key.empty() || event.key == options_.key);
}

std::optional<std::string> TailReader::Line(absl::Status mapped, const outbox::Event& event,
                                            const std::string& label, std::uint32_t ordinal,
                                            envelope::Encoder* encoder) {
  if (!Wanted(event, label)) {
    return std::nullopt;
  }
  const envelope::Position position{facts_.system_identifier, facts_.TimelineOf(commit_lsn_),
                                    commit_lsn_, ordinal};
  envelope::Record record;
  if (mapped.ok()) {
    mapped = encoder->Encode(event, position, transaction_, &arena_, &record);
  }
  ordered_json json;
  json["committed_at"] = CommitTime(transaction_.commit_time);
  json["position"] = position.ToString();
  json["xid"] = transaction_.xid.value;
  json["table"] = label;
  json["id"] = TextOrNull(event.id);
  json["type"] = TextOrNull(event.type);
  if (!mapped.ok()) {
    json["undeliverable"] = std::string(mapped.message());
  } else {
    json["topic"] = std::string(record.topic);
    AddBytes("key", record.key, &json);
    json["headers"] = ordered_json::object();
    for (const envelope::RecordHeader& header : record.headers) {
      AddBytes(std::string(header.name), header.value, &json["headers"]);
    }
    if (options_.payload) {
      AddBytes("payload", event.payload, &json);
    }
    arena_.Release(record.block);
  }
  if (options_.json) {
    return base::JsonText(json) + "\n";
  }
  std::string text = absl::StrFormat(
      "%s %s %s %s %s", json["committed_at"].get<std::string>(),
      mapped.ok() ? Printable(json["topic"].get<std::string>(), 0) : "UNDELIVERABLE",
      event.key ? Printable(*event.key, 0) : "-", Printable(event.type, 0), Printable(event.id, 0));
  if (!mapped.ok()) {
    text += ": " + Printable(std::string(mapped.message()), 0);
  } else if (options_.payload) {
    text += " " + (event.payload ? Printable(*event.payload, 0) : "-");
  }
  return text + "\n";
}

}  // namespace walpost::operations
