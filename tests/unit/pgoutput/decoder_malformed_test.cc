// Whatever is not exactly a message of protocol version 1 is rejected: it may be an event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "pgoutput/decoder.h"
#include "support/pgoutput_bytes.h"
#include "unit/pgoutput/sample_messages.h"

namespace walpost::pgoutput {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::WireWriter;

constexpr std::uint32_t kAbsurdLengths[] = {0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 1'000'000};

absl::Status Decode(std::string_view payload) {
  // In memory of exactly its size, so that a sanitizer sees the first byte read past its end.
  const std::unique_ptr<char[]> exact(new char[payload.size()]);
  std::memcpy(exact.get(), payload.data(), payload.size());
  Decoder decoder;
  Message message;
  return decoder.Decode(std::string_view(exact.get(), payload.size()), &message);
}

void ExpectDataLoss(std::string_view payload, std::string_view what) {
  const absl::Status status = Decode(payload);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << what << ": " << status;
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kSecret)));
}

WireWriter InsertHead() { return WireWriter().Tag('I').U32(16400).Tag('N'); }

TEST(DecoderMalformedTest, EverySampleIsWellFormed) {
  for (const std::string& sample : SampleMessages()) {
    EXPECT_TRUE(Decode(sample).ok()) << sample[0];
  }
}

// Failure 58.
TEST(DecoderMalformedTest, EveryTruncationOfEveryMessageIsDataLoss) {
  for (const std::string& sample : SampleMessages()) {
    for (std::size_t size = 0; size < sample.size(); ++size) {
      ExpectDataLoss(std::string_view(sample).substr(0, size),
                     std::string(1, sample[0]) + " cut to " + std::to_string(size));
    }
  }
}

TEST(DecoderMalformedTest, TrailingBytesOfEveryMessageAreDataLoss) {
  for (const std::string& sample : SampleMessages()) {
    ExpectDataLoss(sample + '\0', std::string(1, sample[0]) + " with a NUL");
    ExpectDataLoss(sample + "n", std::string(1, sample[0]) + " with a letter");
    ExpectDataLoss(sample + sample, std::string(1, sample[0]) + " twice");
  }
}

TEST(DecoderMalformedTest, UnknownTagIsDataLoss) {
  for (int tag = 0; tag < 256; ++tag) {
    const char letter = static_cast<char>(tag);
    if (letter == '\0' || std::strchr("BCORYIUDTM", letter) == nullptr) {
      ExpectDataLoss(letter + std::string(60, '\0'), "tag " + std::to_string(tag));
    }
  }
  EXPECT_EQ(Decode("?12").message(), "pgoutput: unknown message 0x3f of 3 bytes");
}

TEST(DecoderMalformedTest, StreamingAndTwoPhaseMessagesSayThatTheyWereNotAskedFor) {
  for (const char tag : {'S', 'E', 'c', 'b', 'P', 'K', 'r', 'p'}) {
    const absl::Status status = Decode(tag + std::string(24, '\0'));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not asked for")) << tag;
  }
}

TEST(DecoderMalformedTest, UnterminatedNameIsDataLoss) {
  ExpectDataLoss(WireWriter().Tag('O').U64(1).Raw("elsewhere").bytes(), "Origin");
  ExpectDataLoss(WireWriter().Tag('Y').U32(1).CString("public").Raw("mood").bytes(), "Type");
  ExpectDataLoss(WireWriter().Tag('R').U32(1).CString("public").Raw("events").bytes(), "Relation");
  ExpectDataLoss(WireWriter().Tag('M').U8(1).U64(1).Raw("orders").bytes(), "Message");
}

TEST(DecoderMalformedTest, AbsurdValueLengthIsDataLoss) {
  for (const std::uint32_t length : kAbsurdLengths) {
    ExpectDataLoss(InsertHead().U16(1).Tag('t').U32(length).Raw(kSecret).bytes(), "text");
    ExpectDataLoss(InsertHead().U16(1).Tag('b').U32(length).Raw(kSecret).bytes(), "binary");
    ExpectDataLoss(WireWriter().Tag('M').U8(1).U64(1).CString("").U32(length).Raw(kSecret).bytes(),
                   "content");
  }
}

TEST(DecoderMalformedTest, LengthThatReachesIntoTheNextColumnIsDataLoss) {
  ExpectDataLoss(InsertHead().U16(2).Tag('t').U32(3).Raw("ab").Tag('t').U32(2).Raw("cd").bytes(),
                 "one more");
  ExpectDataLoss(InsertHead().U16(2).Tag('t').U32(1).Raw("ab").Tag('t').U32(2).Raw("cd").bytes(),
                 "one less");
}

// Failure 58.
TEST(DecoderMalformedTest, AbsurdCountIsDataLoss) {
  const std::string nulls(70'000, 'n');
  ExpectDataLoss(InsertHead().U16(Decoder::kColumnsMax + 1).Raw(nulls.substr(0, 1601)).bytes(),
                 "one column more than a table can have");
  ExpectDataLoss(InsertHead().U16(0xFFFF).Raw(nulls.substr(0, 0xFFFF)).bytes(), "65535 columns");
  ExpectDataLoss(InsertHead().U16(3).Raw("nn").bytes(), "more columns than bytes");
  Relation wide = SampleRelation();
  wide.columns.resize(Decoder::kColumnsMax + 1);
  ExpectDataLoss(testing::RelationBytes(wide), "wide relation");
  for (const std::uint32_t count : kAbsurdLengths) {
    ExpectDataLoss(WireWriter().Tag('T').U32(count).U8(0).Raw(std::string(12, '\0')).bytes(),
                   "Truncate");
  }
}

TEST(DecoderMalformedTest, ColumnOfUnknownKindIsDataLoss) {
  ExpectDataLoss(InsertHead().U16(1).Tag('x').U32(1).Raw("a").bytes(), "x");
  ExpectDataLoss(InsertHead().U16(1).U8(0).bytes(), "NUL");
}

// A row that was just inserted has no old value that could stay unchanged.
// Failure 41.
TEST(DecoderMalformedTest, UnchangedToastInAnInsertIsDataLoss) {
  ExpectDataLoss(testing::InsertBytes(RelationId{1}, {testing::UnchangedToastColumn()}), "u");
}

TEST(DecoderMalformedTest, WrongTupleTagIsDataLoss) {
  for (int tag = 0; tag < 256; ++tag) {
    const auto byte = static_cast<std::uint8_t>(tag);
    const std::string what = "tag " + std::to_string(tag);
    if (tag != 'N') {
      ExpectDataLoss(WireWriter().Tag('I').U32(1).U8(byte).U16(0).bytes(), "Insert " + what);
      ExpectDataLoss(WireWriter().Tag('U').U32(1).U8(byte).U16(0).bytes(), "Update " + what);
      ExpectDataLoss(WireWriter().Tag('U').U32(1).Tag('K').U16(0).U8(byte).U16(0).bytes(),
                     "Update after the key " + what);
    }
    if (tag != 'K' && tag != 'O') {
      ExpectDataLoss(WireWriter().Tag('D').U32(1).U8(byte).U16(0).bytes(), "Delete " + what);
    }
  }
}

TEST(DecoderMalformedTest, UnknownFlagIsDataLoss) {
  for (int bits = 1; bits < 256; ++bits) {
    const auto flags = static_cast<std::uint8_t>(bits);
    const std::string what = "flags " + std::to_string(bits);
    ExpectDataLoss(WireWriter().Tag('C').U8(flags).U64(1).U64(2).U64(3).bytes(), "Commit " + what);
    if (bits > 1) {
      ExpectDataLoss(WireWriter().Tag('M').U8(flags).U64(1).CString("p").U32(0).bytes(),
                     "Message " + what);
      WireWriter relation;
      relation.Tag('R').U32(1).CString("s").CString("t").Tag('d').U16(1);
      ExpectDataLoss(relation.U8(flags).CString("c").U32(25).U32(0).bytes(), "Relation " + what);
    }
    if (bits > 3) {
      ExpectDataLoss(WireWriter().Tag('T').U32(0).U8(flags).bytes(), "Truncate " + what);
    }
  }
}

TEST(DecoderMalformedTest, UnknownReplicaIdentityIsDataLoss) {
  for (const char identity : {'x', 'D', '\0', '\xff'}) {
    Relation relation = SampleRelation();
    relation.replica_identity = identity;
    ExpectDataLoss(testing::RelationBytes(relation), std::string(1, identity));
  }
}

TEST(DecoderMalformedTest, ErrorNamesTheMessageAndWhatIsWrong) {
  EXPECT_EQ(Decode("").message(), "pgoutput: empty message");
  EXPECT_EQ(Decode("B12").message(), "pgoutput: Begin message: ends too early");
  EXPECT_EQ(Decode(testing::TypeBytes(1, "a", "b") + "xy").message(),
            "pgoutput: Type message: 2 bytes too long");
  EXPECT_EQ(Decode(InsertHead().U16(1).Tag('x').bytes()).message(),
            "pgoutput: Insert message: column value of unknown kind 0x78");
}

TEST(DecoderMalformedTest, DecoderIsUsableAfterAnError) {
  Decoder decoder;
  Message message;
  EXPECT_FALSE(decoder.Decode(InsertHead().U16(1).Tag('x').bytes(), &message).ok());
  const std::string good = testing::InsertBytes(RelationId{1}, {testing::TextColumn("good")});
  ASSERT_TRUE(decoder.Decode(good, &message).ok());
  EXPECT_EQ(std::get<Insert>(message).values[0].bytes, "good");
}

}  // namespace
}  // namespace walpost::pgoutput
