// A certificate that was there at the start and is away when the next producer is made: the sink
// waits for it, as it waits for a broker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "conformance/kafka_sink_harness.h"

namespace walpost::testing {
namespace {

using delivery::Sink;
using delivery::SubmitResult;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kCertificate[] = R"(-----BEGIN CERTIFICATE-----
MIIBcjCCARegAwIBAgIUWphf09l06EqXp/AA4IjJiYwp8qEwCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTIyMDQzMTQ3WhgPMjEyNjEwMjkwNDMxNDda
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMkKSeY9m
0bODOHUfle+BFrBOqQF/PhtnL3yhOKbQSpAJTNQn6EItu7eCRA2+J2WPct1x7LlJ
S3yWdUKQffwbXaNTMFEwHQYDVR0OBBYEFC1/huGqeFqFo0JKp/jYd/69gHYKMB8G
A1UdIwQYMBaAFC1/huGqeFqFo0JKp/jYd/69gHYKMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSQAwRgIhALcNZ/pndY+pczWri0/bj2y6eDkDmhny1hKhly2u
TYa6AiEAh6krpMFnzhEP6+bNCr/LkB/LgotVZZahLr53BZDq2lY=
-----END CERTIFICATE-----
)";

class Certificate {
 public:
  explicit Certificate(std::string path) : path_(std::move(path)) { Put(); }

  ~Certificate() { Take(); }

  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  void Put() const { std::ofstream(path_) << kCertificate; }

  void Take() const { (void)std::remove(path_.c_str()); }

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

class Harness final : public KafkaSinkHarness {
 public:
  // Port 1 answers nobody; what is tested comes before any connection.
  explicit Harness(const std::string& certificate)
      : KafkaSinkHarness("127.0.0.1:1",
                         {{"security.protocol", "ssl"}, {"ssl.ca.location", certificate}}) {}

  std::string MakeTopic(int /*partitions*/) override { return NewName("topic"); }

  std::string MissingTopic(delivery::Sequence /*sequence*/) override { return NewName("missing"); }

  void ArmPoison() override {}
};

class LostCertificate : public ::testing::Test {
 protected:
  void ReopenWithoutIt() {
    sink_.Open(Sink::Mode::kPipelined);
    ASSERT_EQ(Offer(), SubmitResult::Outcome::kTopicPending) << "there is a producer";
    sink_.Close();
    AwaitClosed();
    certificate_.Take();
    sink_.Open(Sink::Mode::kOneAtATime);
  }

  void Poll() { sink_.Poll(harness_.now(), &reports_); }

  void AwaitClosed() {
    const int before = reports_.closed;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (reports_.closed == before) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "OnClosed";
      Poll();
      harness_.Step();
    }
  }

  SubmitResult::Outcome Offer() {
    envelope::Record record;
    record.topic = "orders";
    return sink_.Submit(record, 0).outcome;
  }

  Certificate certificate_{::testing::TempDir() + "walpost_lost_certificate_" +
                           std::to_string(getpid()) + ".pem"};
  Harness harness_{certificate_.path()};
  Sink& sink_ = *harness_.sink();
  SinkReports reports_;
};

TEST_F(LostCertificate, SinkIsOpenTakesNothingAndSaysWhichProperty) {
  ReopenWithoutIt();
  EXPECT_FALSE(sink_.closed());
  EXPECT_EQ(Offer(), SubmitResult::Outcome::kNotNow);
  EXPECT_THAT(harness_.notices(), Contains("kafka_producer_impossible"));
  EXPECT_THAT(harness_.facts().last_error, HasSubstr("ssl.ca.location"));
  sink_.Close();
  AwaitClosed();
}

// Failure 86.
TEST_F(LostCertificate, ProducerIsMadeOnceTheFileIsBackAndNotBeforeItIsDue) {
  ReopenWithoutIt();
  Poll();
  Poll();
  certificate_.Put();
  Poll();
  EXPECT_EQ(Offer(), SubmitResult::Outcome::kNotNow);
  ASSERT_TRUE(sink_.NextDeadline().has_value());
  harness_.Skip(milliseconds(5'000));
  Poll();
  EXPECT_EQ(Offer(), SubmitResult::Outcome::kTopicPending);
  sink_.Close();
  AwaitClosed();
}

TEST_F(LostCertificate, ReloadOfTheConfigurationTriesAtOnce) {
  ReopenWithoutIt();
  Poll();
  certificate_.Put();
  harness_.Reconfigure();
  ASSERT_TRUE(harness_.AwaitWake());
  Poll();
  EXPECT_EQ(Offer(), SubmitResult::Outcome::kTopicPending);
  sink_.Close();
  AwaitClosed();
}

TEST_F(LostCertificate, ClosingWithoutAProducerEndsWithOnClosed) {
  ReopenWithoutIt();
  sink_.Close();
  AwaitClosed();
  EXPECT_TRUE(sink_.closed());
  certificate_.Put();
  sink_.Open(Sink::Mode::kPipelined);
  EXPECT_EQ(Offer(), SubmitResult::Outcome::kTopicPending);
  sink_.Close();
  AwaitClosed();
}

}  // namespace
}  // namespace walpost::testing
