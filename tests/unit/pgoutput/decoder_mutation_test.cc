// Damaged messages: never a crash, never a read outside the payload, and what is still accepted
// means exactly the bytes that arrived. WALPOST_SEED repeats a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "pgoutput/decoder.h"
#include "support/golden_messages.h"
#include "support/random_seed.h"
#include "unit/pgoutput/encode_message.h"
#include "unit/pgoutput/sample_messages.h"

namespace walpost::pgoutput {
namespace {

constexpr int kRounds = 200'000;

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::size_t Below(std::size_t limit) { return random_() % limit; }

  void Mutate(std::string* bytes) {
    for (std::size_t times = 1 + Below(3); times > 0; --times) {
      MutateOnce(bytes);
    }
  }

 private:
  void MutateOnce(std::string* bytes) {
    const std::size_t place = Below(bytes->size() + 1);
    switch (Below(6)) {
      case 0:  // one bit
        if (place < bytes->size()) {
          (*bytes)[place] = static_cast<char>((*bytes)[place] ^ (1 << Below(8)));
        }
        break;
      case 1:  // one byte
        if (place < bytes->size()) {
          (*bytes)[place] = static_cast<char>(Below(256));
        }
        break;
      case 2:
        bytes->resize(place);
        break;
      case 3:
        bytes->erase(place, 1 + Below(4));
        break;
      case 4:
        bytes->insert(place, 1 + Below(4), static_cast<char>(Below(256)));
        break;
      default:  // an extreme where a length or count may be
        for (std::size_t i = place; i < std::min(place + 4, bytes->size()); ++i) {
          (*bytes)[i] = static_cast<char>(Below(2) == 0 ? 0xFF : 0x7F);
        }
    }
  }

  std::mt19937_64 random_;
};

// Failure 58.
TEST(DecoderMutationTest, DamagedMessageIsRejectedOrMeansItsBytes) {
  std::vector<std::string> corpus = SampleMessages();
  for (const char* name : {"v15-text", "v15-binary"}) {
    for (const std::string& message : testing::GoldenMessages(name)) {
      corpus.push_back(message);
    }
  }
  Mutator mutator(testing::RandomSeed());
  Decoder decoder;  // one for all rounds: nothing of a rejected message may reach the next
  Message message;
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = corpus[mutator.Below(corpus.size())];
    mutator.Mutate(&bytes);
    // In memory of exactly its size, so that a sanitizer sees the first byte read past its end.
    const std::unique_ptr<char[]> exact(new char[bytes.size()]);
    std::memcpy(exact.get(), bytes.data(), bytes.size());
    const absl::Status status =
        decoder.Decode(std::string_view(exact.get(), bytes.size()), &message);
    if (status.ok()) {
      ++accepted;
      ASSERT_EQ(EncodeMessage(message).value_or(bytes), bytes) << "round " << round;
    } else {
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << status << ", round " << round;
    }
  }
  // Both outcomes were really tried: many flips hit a value's own bytes and leave the shape alone.
  EXPECT_GT(accepted, kRounds / 100);
  EXPECT_LT(accepted, kRounds / 100 * 99);
}

TEST(DecoderMutationTest, NoiseIsRejectedOrMeansItsBytes) {
  Mutator mutator(testing::RandomSeed());
  Decoder decoder;
  Message message;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes(mutator.Below(64), '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(mutator.Below(mutator.Below(2) == 0 ? 4 : 256));
    }
    if (!bytes.empty() && mutator.Below(4) != 0) {
      bytes[0] = "BCORYIUDTM"[mutator.Below(10)];
    }
    if (decoder.Decode(bytes, &message).ok()) {
      ASSERT_EQ(EncodeMessage(message).value_or(bytes), bytes) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace walpost::pgoutput
