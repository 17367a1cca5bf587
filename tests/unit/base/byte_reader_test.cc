#include "base/byte_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace walpost::base {
namespace {

using std::string_literals::operator""s;

TEST(ByteReaderTest, ReadsBigEndianIntegersInOrder) {
  const std::string bytes =
      "\x01\x02\x03\x04\x05\x06\x07\xff\xff\xff\xfe\x00\x00\x00\x00\x00\x00\x00\x09"s;
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U8(), 0x01);
  EXPECT_EQ(reader.U16(), 0x0203);
  EXPECT_EQ(reader.U32(), 0x04050607U);
  EXPECT_EQ(reader.I32(), -2);
  EXPECT_EQ(reader.I64(), 9);
  EXPECT_TRUE(reader.AtEnd());
}

TEST(ByteReaderTest, ReadPastTheEndFailsAndStaysFailed) {
  const std::string bytes = "\x01\x02\x03"s;
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U32(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.U8(), 0);
  EXPECT_FALSE(reader.AtEnd());
}

TEST(ByteReaderTest, UnterminatedStringFails) {
  ByteReader reader("abc");
  EXPECT_EQ(reader.CString(), "");
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReaderTest, StringEndsAtItsNul) {
  const std::string bytes = "abc\0\0def"s;
  ByteReader reader(bytes);
  EXPECT_EQ(reader.CString(), "abc");
  EXPECT_EQ(reader.CString(), "");
  EXPECT_EQ(reader.Rest(), "def");
  EXPECT_TRUE(reader.AtEnd());
}

TEST(ByteReaderTest, LengthBeyondTheEndFailsWithoutReading) {
  ByteReader reader("abc");
  EXPECT_EQ(reader.Bytes(4), "");
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
}

}  // namespace
}  // namespace walpost::base
