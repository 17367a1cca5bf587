// Completion - what a shell completes, and the man page says, made from the command line's own
// tree.
// Why: typed by hand they would be wrong with the next option.
// Thread: free functions.
// Source: bash(1) "Programmable Completion", zshcompsys(1) "_describe", fish complete(1).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace walpost::cli {

// For `shell` = bash, zsh, fish: its script. For "json": verbs and options as JSON.
std::string Completion(const CLI::App& app, std::string_view shell);

// The verb `completion`; `shell` is set to what was asked for.
void AddCompletionVerb(CLI::App* app, std::string* shell);

}  // namespace walpost::cli
