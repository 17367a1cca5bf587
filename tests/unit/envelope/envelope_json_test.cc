#include "envelope/envelope_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "walpost/v1/envelope.pb.h"

namespace walpost::envelope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EnvelopeJsonTest, EnvelopeIsReadable) {
  v1::Envelope envelope;
  envelope.set_id("a1");
  envelope.set_payload("hello");
  EXPECT_THAT(EnvelopeAsJson(envelope.SerializeAsString()).value_or(""),
              AllOf(HasSubstr("\"id\": \"a1\""), HasSubstr("\"payload\": \"aGVsbG8=\"")));
}

TEST(EnvelopeJsonTest, OtherBytesAreNone) { EXPECT_FALSE(EnvelopeAsJson("{\"no\": 1}")); }

}  // namespace
}  // namespace walpost::envelope
