#include "pgoutput/frame.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <variant>

#include "support/pgoutput_bytes.h"

namespace walpost::pgoutput {
namespace {

using base::Lsn;
using base::WallTime;
using testing::KeepaliveFrame;
using testing::WireWriter;
using testing::XLogDataFrame;

constexpr WallTime kNoon = base::FromPostgresMicros(762'523'200'123'456);  // 2024-02-29 12:00

absl::StatusCode CodeOf(std::string_view frame) { return DecodeFrame(frame).status().code(); }

TEST(FrameTest, XLogDataIsItsPayloadWithoutTheHeader) {
  const std::string bytes = XLogDataFrame("payload", Lsn(0x100), Lsn(0x200), kNoon);
  const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
  ASSERT_TRUE(frame.ok()) << frame.status();
  const XLogData& data = std::get<XLogData>(*frame);
  EXPECT_EQ(data.payload, "payload");
  EXPECT_EQ(data.payload.data(), bytes.data() + 25) << "the payload was copied";
}

TEST(FrameTest, XLogDataMayBeEmpty) {
  const std::string bytes = XLogDataFrame("");
  EXPECT_EQ(std::get<XLogData>(DecodeFrame(bytes).value()).payload, "");
}

TEST(FrameTest, KeepaliveHoldsPositionTimeAndWhetherToReply) {
  for (const bool reply_requested : {false, true}) {
    const std::string bytes = KeepaliveFrame(Lsn(0x16B374D848), reply_requested, kNoon);
    const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
    ASSERT_TRUE(frame.ok()) << frame.status();
    const Keepalive& keepalive = std::get<Keepalive>(*frame);
    EXPECT_EQ(keepalive.wal_end, Lsn(0x16B374D848));
    EXPECT_EQ(keepalive.server_time, kNoon);
    EXPECT_EQ(keepalive.reply_requested, reply_requested);
  }
}

// Failure 29.
TEST(FrameTest, TimeFarOutsideTheCalendarIsNoError) {
  for (const std::int64_t micros :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    const std::string bytes =
        WireWriter().Tag('k').U64(1).U64(static_cast<std::uint64_t>(micros)).U8(1).bytes();
    const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_TRUE(std::get<Keepalive>(*frame).reply_requested);
    EXPECT_EQ(base::ToPostgresMicros(std::get<Keepalive>(*frame).server_time), micros);
  }
}

TEST(FrameTest, EveryTruncationOfAHeaderIsDataLoss) {
  for (const std::string& frame :
       {XLogDataFrame(""), KeepaliveFrame(Lsn(0x100), /*reply_requested=*/true)}) {
    for (std::size_t size = 0; size < frame.size(); ++size) {
      EXPECT_EQ(CodeOf(frame.substr(0, size)), absl::StatusCode::kDataLoss)
          << frame[0] << " cut to " << size;
    }
  }
}

TEST(FrameTest, LongKeepaliveIsDataLoss) {
  EXPECT_EQ(CodeOf(KeepaliveFrame(Lsn(0x100)) + '\0'), absl::StatusCode::kDataLoss);
}

TEST(FrameTest, UnknownTagIsDataLossAndNamedWithTheSize) {
  for (int tag = 0; tag < 256; ++tag) {
    if (tag == 'w' || tag == 'k') {
      continue;
    }
    const std::string bytes = static_cast<char>(tag) + std::string(40, '\0');
    EXPECT_EQ(CodeOf(bytes), absl::StatusCode::kDataLoss) << tag;
  }
  EXPECT_EQ(DecodeFrame("z12").status().message(),
            "replication stream: unknown frame 0x7a of 3 bytes");
}

TEST(StandbyStatusTest, IsTheManualsThirtyFourBytes) {
  StandbyStatus status;
  status.write = Lsn(0x300);
  status.flush = Lsn(0x200);
  status.apply = Lsn(0x100);
  status.client_time = kNoon;
  for (const bool reply_requested : {false, true}) {
    status.reply_requested = reply_requested;
    const std::string bytes = EncodeStandbyStatus(status);
    EXPECT_EQ(bytes.size(), 34U);
    EXPECT_EQ(bytes, WireWriter()
                         .Tag('r')
                         .U64(0x300)
                         .U64(0x200)
                         .U64(0x100)
                         .U64(762'523'200'123'456)
                         .U8(reply_requested ? 1 : 0)
                         .bytes());
  }
}

TEST(StandbyStatusTest, TimeBeforeThePostgresEpochIsNegative) {
  StandbyStatus status;
  status.client_time = base::FromPostgresMicros(-1);
  EXPECT_EQ(EncodeStandbyStatus(status).substr(25, 8), std::string(8, '\xff'));
}

}  // namespace
}  // namespace walpost::pgoutput
