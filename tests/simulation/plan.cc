#include "plan.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "outbox/options.h"
#include "progress_log.h"
#include "random.h"

namespace walpost::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr std::string_view kFaultNames[] = {
#define WALPOST_FAULT_NAME(name) #name,
    WALPOST_SIMULATION_FAULTS(WALPOST_FAULT_NAME)
#undef WALPOST_FAULT_NAME
};

constexpr std::string_view kPolicyNames[] = {"halt", "dead_letter", "park", "skip"};

// What becomes of events that cannot be delivered.
void DrawPolicy(Plan* plan) {
  Random random(plan->seed, 5);
  using pipeline::OnUndeliverable;
  constexpr std::array kPolicies = {OnUndeliverable::kHalt,       OnUndeliverable::kSkip,
                                    OnUndeliverable::kDeadLetter, OnUndeliverable::kPark,
                                    OnUndeliverable::kPark,       OnUndeliverable::kPark};
  pipeline::PipelineOptions& options = plan->options;
  options.name = kPipelineName;
  options.on_undeliverable = kPolicies[random.Below(kPolicies.size())];
  if (random.Chance(150)) {
    options.dead_letters_max = random.Between(1, 6);
  }
  if (random.Chance(150)) {
    options.dead_letters_per_second = random.Between(1, 20);
  }
  if (options.on_undeliverable == OnUndeliverable::kHalt) {
    plan->faults.Remove(Fault::undeliverable_rows);  // nobody can fix it
  } else if (random.Chance(700)) {
    plan->faults.Add(Fault::kafka_poison);
    plan->faults.Add(Fault::operator_commands);
  }
}

// A table that becomes an outbox must be remembered, and which rows of it are whose must be clear.
void DrawAdoption(Plan* plan) {
  if (!plan->remembers() || plan->tables < 2) {
    plan->faults.Remove(Fault::adopted);
  }
  plan->adopts = plan->faults.Has(Fault::adopted);
  if (plan->adopts) {
    for (const Fault fault : {Fault::progress_deleted, Fault::slot_moved, Fault::slot_made_anew,
                              Fault::other_cluster, Fault::replaced, Fault::edited}) {
      plan->faults.Remove(fault);
    }
  }
}

// Most pipelines remember how far they came. Without that no other client is noticed.
void DrawProgress(Plan* plan) {
  Random random(plan->seed, 9);
  if (random.Chance(850)) {
    plan->options.progress_topic = ProgressLog::kTopic;
    return;
  }
  for (const Fault fault :
       {Fault::slot_moved, Fault::slot_made_anew, Fault::other_cluster, Fault::replaced,
        Fault::edited, Fault::taken_over, Fault::silent_loss, Fault::progress_deleted}) {
    plan->faults.Remove(fault);
  }
}

pipeline::PipelineOptions MakeOptions(const Plan& plan, Random* random) {
  pipeline::PipelineOptions options = plan.options;
  for (std::uint64_t i = 0; i < plan.tables; ++i) {
    envelope::OutboxOptions outbox;
    outbox.table = *outbox::PresetOptions("walpost");
    outbox.table.topic = "{aggregate_type}";
    outbox.table.topics.own = {ProgressLog::kTopic, kDeadLetterTopic};
    outbox.table.table = absl::StrFormat("events%u", i);
    outbox.encoder.format =
        plan.raw ? envelope::ValueFormat::kRaw : envelope::ValueFormat::kEnvelope;
    if (plan.framed) {
      outbox.encoder.framing.framing = envelope::Framing::kPayload;
      outbox.encoder.framing.type = envelope::SchemaType::kJson;
      outbox.encoder.framing.subject = "{topic}-value";
    }
    options.outboxes.push_back(outbox);
  }
  const base::BackoffOptions backoff{milliseconds(100), milliseconds(1'000), milliseconds(10)};
  options.source_backoff = backoff;
  options.standby_backoff = backoff;
  options.sink_backoff = backoff;
  options.schema_backoff = backoff;
  options.schema_refresh = milliseconds(2'000);
  options.seed = random->Next();
  options.shutdown_timeout = milliseconds(random->Between(1, 25) * 1'000);
  options.in_flight_bytes_max =
      plan.faults.Has(Fault::small_limit) ? random->Between(600, 20'000) : std::size_t{1024} * 1024;
  options.reconnect_interval =
      milliseconds(plan.faults.Has(Fault::planned_reconnect) ? random->Between(50, 2'000)
                                                             : std::uint64_t{600'000});
  options.event_bytes_max = kEventBytesMax;
  options.gather_for = microseconds(plan.faults.Has(Fault::gathering) ? 6'000 : 0);
  options.gather_max = microseconds(plan.faults.Has(Fault::gathering) ? 25'000 : 0);
  return options;
}

}  // namespace

std::string Faults::ToString() const {
  std::string text;
  for (unsigned i = 0; i < static_cast<unsigned>(Fault::count_); ++i) {
    if (Has(static_cast<Fault>(i))) {
      text += (text.empty() ? "" : ",") + std::string(kFaultNames[i]);
    }
  }
  return text;
}

bool Faults::Parse(std::string_view names) {
  for (const auto part : absl::StrSplit(absl::string_view(names.data(), names.size()), ',')) {
    const std::string_view name(part.data(), part.size());
    const auto* const found = std::find(std::begin(kFaultNames), std::end(kFaultNames), name);
    if (found == std::end(kFaultNames)) {
      return false;
    }
    Add(static_cast<Fault>(found - std::begin(kFaultNames)));
  }
  return true;
}

std::string Plan::ToString() const {
  return absl::StrFormat(
      "seed %u: %u transactions, %u turns, %u outboxes, %u keys, limit %u bytes, %s, progress "
      "%s%s; "
      "faults: %s",
      seed, transactions, turns, tables, keys, options.in_flight_bytes_max,
      std::string(kPolicyNames[static_cast<std::size_t>(options.on_undeliverable)]),
      remembers() ? "on" : "off", framed ? ", framed" : "", faults.ToString());
}

std::string Cuts::ToString() const {
  std::string text;
  if (!without.ToString().empty()) {
    text += " --without " + without.ToString();
  }
  if (transactions_max != UINT64_MAX) {
    text += absl::StrFormat(" --transactions %u", transactions_max);
  }
  if (turns_max != UINT64_MAX) {
    text += absl::StrFormat(" --turns %u", turns_max);
  }
  return text;
}

Plan MakePlan(std::uint64_t seed, const Cuts& cuts) {
  Random random(seed, 0);
  Plan plan;
  plan.seed = seed;
  const unsigned density = std::array{0U, 100U, 200U, 400U}[random.Below(4)];
  for (unsigned i = 0; i < static_cast<unsigned>(Fault::promoted); ++i) {
    const bool load = i >= static_cast<unsigned>(Fault::gathering);
    if (random.Chance(load ? 400 : density)) {
      plan.faults.Add(static_cast<Fault>(i));
    }
  }
  if (Random(seed, 13).Chance(density)) {
    plan.faults.Add(Fault::promoted);
  }
  if (Random(seed, 14).Chance(density)) {
    plan.faults.Add(Fault::progress_compacted);
  }
  if (Random(seed, 15).Chance(density)) {
    plan.faults.Add(Fault::silent_loss);
  }
  if (Random(seed, 16).Chance(density)) {
    plan.faults.Add(Fault::adopted);
  }
  DrawPolicy(&plan);
  DrawProgress(&plan);
  if (plan.options.on_undeliverable == pipeline::OnUndeliverable::kDeadLetter ||
      plan.options.on_undeliverable == pipeline::OnUndeliverable::kPark) {
    // Their position identifies rows, and a server that was set back uses it once more.
    plan.faults.Remove(Fault::set_back);
    plan.faults.Remove(Fault::taken_over);
    plan.faults.Remove(Fault::silent_loss);
  }
  plan.faults.RemoveAll(cuts.without);
  plan.transactions = std::min(random.Between(5, 60), cuts.transactions_max);
  plan.turns = std::min(random.Between(100, 500), cuts.turns_max);
  plan.tables = random.Between(1, 2);
  DrawAdoption(&plan);
  plan.keys = random.Between(1, 5);
  plan.wal_sender_timeout_ms = std::array<std::int64_t, 3>{0, 3'000, 60'000}[random.Below(3)];
  plan.empty_transactions_sent = random.Chance(500);
  plan.raw = random.Chance(500);
  plan.framed = Random(seed, 11).Chance(300);
  plan.options = MakeOptions(plan, &random);
  return plan;
}

}  // namespace walpost::simulation
