// Presets - the mapping that `preset: walpost` and `preset: debezium` stand for.
#pragma once

#include <optional>
#include <string_view>

#include "outbox/options.h"

namespace walpost::outbox {

// Of rows of preset walpost and of messages: bounded by its text, as that of Debezium's Event Router.
inline constexpr char kDefaultTopic[] = "outbox.event.{aggregate_type}";

// nullopt for a name that is no preset. kPresetNames lists those that are.
std::optional<TableOptions> PresetOptions(std::string_view preset);

inline constexpr std::string_view kPresetNames[] = {"walpost", "debezium"};

}  // namespace walpost::outbox
